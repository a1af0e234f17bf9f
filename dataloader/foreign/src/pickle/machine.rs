use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::reader::{Reader, unescape, unquote};
use super::view::{Node, Object, Pickle, Value};
use crate::SharedBytes;

const UNKNOWN: &str = "unknown opcode";
/// Nodes a pickle may make. The vocabulary of a billion words' corpus takes a tenth of it.
const MAX_NODES: usize = 1 << 23;
/// Values a pickle may push or memoise.
const MAX_VALUES: usize = 1 << 25;
/// Bytes the machine may hold for each byte of the file that it has read. The densest that Python writes is an empty
/// `OrderedDict`, `h\x03)R`: 224 bytes for 4.
const HELD_PER_BYTE: usize = 64;
/// Bytes it may hold besides.
const HELD_BESIDES: usize = 1 << 16;
/// What an entry of the memo takes in its table.
const MEMO_BYTES: usize = 32;

struct Machine<'a> {
    reader: Reader<'a>,
    nodes: Vec<Node>,
    stack: Vec<Value>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    values: usize,
    /// Bytes of all that was ever made; nothing is taken off for what was dropped.
    held: usize,
}

/// Runs the program of a pickle up to its STOP.
pub(super) fn run(input: &SharedBytes) -> Result<Pickle, String> {
    let mut machine = Machine {
        reader: Reader::new(input),
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        values: 0,
        held: 0,
    };
    loop {
        let at = machine.reader.at;
        let opcode = machine.reader.u8()?;
        if opcode == b'.' {
            break;
        }
        machine.step(opcode).map_err(|why| {
            // Most letters of a text are opcodes. What stumbles before it has made a list, a text or the like is hardly a pickle.
            let is_doubtful = machine.nodes.is_empty() || why == UNKNOWN;
            let doubt = if is_doubtful { ": is it a pickle?" } else { "" };
            format!("{why}{doubt} (opcode {opcode:#04x} at byte {at})")
        })?;
    }
    let root = machine.pop()?;
    Ok(Pickle { nodes: machine.nodes, root, length: machine.reader.at, looks: AtomicUsize::new(0) })
}

impl Machine<'_> {
    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            // PROTO, FRAME: how the rest is written, which the opcodes show themselves.
            0x80 => _ = self.reader.u8()?,
            0x95 => _ = self.reader.u64()?,
            b'(' => {
                self.count(size_of::<usize>())?;
                self.marks.push(self.stack.len());
            }
            b'0' => self.pop_or_mark()?,
            b'1' => _ = self.since_mark()?,
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'I' | b'J' | b'K' | b'L' | b'M' | b'F' | b'G' | 0x8A | 0x8B => self.number(opcode)?,
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8C | 0x8D => self.text(opcode)?,
            b'B' | b'C' | 0x8E | 0x96 => {
                let length = match opcode {
                    b'B' => u64::from(self.reader.u32()?),
                    b'C' => u64::from(self.reader.u8()?),
                    _ => self.reader.u64()?,
                };
                let bytes = self.reader.take(length)?;
                self.push_node(Node::Bytes(bytes))?;
            }
            0x97 => return Err("its buffers lie outside the file".into()),
            0x98 => {}
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memo(opcode)?,
            b']' | b'l' | b'a' | b'e' | b')' | b't' | 0x85..=0x87 | 0x8F..=0x91 => self.sequence(opcode)?,
            b'}' | b'd' | b's' | b'u' => self.dict(opcode)?,
            b'c' | 0x93 | b'R' | 0x81 | 0x92 | b'b' | b'i' | b'o' | b'P' | b'Q' | 0x82..=0x84 => {
                self.call(opcode)?;
            }
            _ => return Err(UNKNOWN.into()),
        }
        Ok(())
    }

    fn number(&mut self, opcode: u8) -> Result<(), String> {
        let value = match opcode {
            b'J' => Value::Int(i64::from(i32::from_le_bytes(self.reader.word()?))),
            b'K' => Value::Int(i64::from(self.reader.u8()?)),
            b'M' => Value::Int(i64::from(u16::from_le_bytes(self.reader.word()?))),
            b'G' => Value::Float(f64::from_be_bytes(self.reader.word()?)),
            b'F' => {
                let line = self.reader.text_line()?;
                Value::Float(line.trim().parse().map_err(|_| format!("`{line}` is not a number"))?)
            }
            b'I' | b'L' => {
                let line = self.reader.text_line()?;
                match line.trim() {
                    "00" => Value::Bool(false),
                    "01" => Value::Bool(true),
                    digits => {
                        let digits = digits.strip_suffix('L').unwrap_or(digits);
                        Value::Int(digits.parse().map_err(|_| "a number of more than 64 bits")?)
                    }
                }
            }
            _ => {
                let length = if opcode == 0x8A {
                    u64::from(self.reader.u8()?)
                } else {
                    self.reader.signed_length()?
                };
                let bytes = self.reader.take(length)?;
                if bytes.len() > 8 {
                    return self.push_node(Node::Big(bytes.to_vec().into()));
                }
                let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
                let mut word = [sign; 8];
                word[..bytes.len()].copy_from_slice(&bytes);
                Value::Int(i64::from_le_bytes(word))
            }
        };
        self.push(value)
    }

    fn text(&mut self, opcode: u8) -> Result<(), String> {
        let node = match opcode {
            b'S' => Node::Bytes(unquote(&self.reader.line()?)?.into()),
            b'T' => {
                let length = self.reader.signed_length()?;
                Node::Bytes(self.reader.take(length)?)
            }
            b'U' => {
                let length = u64::from(self.reader.u8()?);
                Node::Bytes(self.reader.take(length)?)
            }
            b'V' => Node::Str(unescape(&self.reader.line()?)?.into()),
            _ => {
                let length = match opcode {
                    b'X' => u64::from(self.reader.u32()?),
                    0x8C => u64::from(self.reader.u8()?),
                    _ => self.reader.u64()?,
                };
                let bytes = self.reader.take(length)?;
                // Python lets surrogates pass; they stand for nothing here.
                Node::Str(String::from_utf8_lossy(&bytes).into())
            }
        };
        self.push_node(node)
    }

    fn memo(&mut self, opcode: u8) -> Result<(), String> {
        let key = match opcode {
            b'p' | b'g' => {
                let line = self.reader.text_line()?;
                line.trim().parse().map_err(|_| format!("`{line}` is not a memo index"))?
            }
            b'q' | b'h' => u64::from(self.reader.u8()?),
            b'r' | b'j' => u64::from(self.reader.u32()?),
            _ => self.memo.len() as u64,
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            let value = *self.memo.get(&key).ok_or_else(|| format!("memo {key} is empty"))?;
            return self.push(value);
        }
        self.count(MEMO_BYTES)?;
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn sequence(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            b']' => self.push_node(Node::List(Vec::new())),
            b')' => self.push_node(Node::Tuple(Vec::new())),
            0x8F => self.push_node(Node::Set(Vec::new())),
            b'l' => {
                let members = self.since_mark()?;
                self.push_node(Node::List(members))
            }
            b't' => {
                let members = self.since_mark()?;
                self.push_node(Node::Tuple(members))
            }
            0x91 => {
                let members = self.since_mark()?;
                self.push_node(Node::Set(members))
            }
            0x85..=0x87 => {
                let members = self.last(usize::from(opcode - 0x84))?;
                self.push_node(Node::Tuple(members))
            }
            _ => {
                let members = if opcode == b'a' { self.last(1)? } else { self.since_mark()? };
                match self.top_node()? {
                    Node::List(list) | Node::Set(list) => list.extend(members),
                    Node::Object(object) => object.elements.extend(members),
                    _ => return Err("members are added to what has none".into()),
                }
                Ok(())
            }
        }
    }

    fn dict(&mut self, opcode: u8) -> Result<(), String> {
        let members = match opcode {
            b'}' => return self.push_node(Node::Dict(Vec::new())),
            b's' => self.last(2)?,
            _ => self.since_mark()?,
        };
        let (pairs, []) = members.as_chunks::<2>() else {
            return Err("a key has no value".into());
        };
        let pairs = pairs.iter().map(|[key, value]| (*key, *value));
        if opcode == b'd' {
            return self.push_node(Node::Dict(pairs.collect()));
        }
        match self.top_node()? {
            Node::Dict(dict) => dict.extend(pairs),
            Node::Object(object) => object.items.extend(pairs),
            _ => return Err("items are set in what has none".into()),
        }
        Ok(())
    }

    /// Everything that Python would look up, call or load: noted, never done.
    fn call(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            b'c' => {
                let global = self.global_lines()?;
                self.push_node(global)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let global = Node::Global(self.name_of(module)?, self.name_of(name)?);
                self.push_node(global)
            }
            b'R' | 0x81 => {
                let (args, class) = (self.pop()?, self.pop()?);
                self.push_object(class, args)
            }
            0x92 => {
                let (_named, args, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.push_object(class, args)
            }
            b'b' => {
                let state = self.pop()?;
                match self.top_node()? {
                    Node::Object(object) => object.state = Some(state),
                    _ => return Err("a state is given to what takes none".into()),
                }
                Ok(())
            }
            b'i' => {
                let global = self.global_lines()?;
                let members = self.since_mark()?;
                let (class, args) = (self.node(global)?, self.node(Node::Tuple(members))?);
                self.push_object(class, args)
            }
            b'o' => {
                let mut members = self.since_mark()?;
                if members.is_empty() {
                    return Err("an object has no class".into());
                }
                let class = members.remove(0);
                let args = self.node(Node::Tuple(members))?;
                self.push_object(class, args)
            }
            b'P' => {
                let id = self.reader.text_line()?;
                let id = self.node(Node::Str(id.into()))?;
                self.push_node(Node::Persistent(id))
            }
            b'Q' => {
                let id = self.pop()?;
                self.push_node(Node::Persistent(id))
            }
            _ => Err("it uses Python's private extension registry".into()),
        }
    }

    fn push_object(&mut self, class: Value, args: Value) -> Result<(), String> {
        let object = Object { class, args, state: None, items: Vec::new(), elements: Vec::new() };
        self.push_node(Node::Object(Box::new(object)))
    }

    /// A class as the older protocols name it: a line for its module, one for its name.
    fn global_lines(&mut self) -> Result<Node, String> {
        Ok(Node::Global(self.reader.text_line()?.into(), self.reader.text_line()?.into()))
    }

    /// A text that names a class or its module; shared, because a pickle may use one text any number of times.
    fn name_of(&self, value: Value) -> Result<Arc<str>, String> {
        match value {
            Value::Node(number) => match &self.nodes[number as usize] {
                Node::Str(text) => Ok(text.clone()),
                _ => Err("a class has no name".into()),
            },
            _ => Err("a class has no name".into()),
        }
    }

    /// Counts a value that takes `bytes`.
    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(format!("it makes more than {MAX_VALUES} values"));
        }
        self.hold(bytes)
    }

    /// Keeps what a file can make its reader hold in proportion to what was read of it.
    fn hold(&mut self, bytes: usize) -> Result<(), String> {
        self.held = self.held.saturating_add(bytes);
        let most = self.reader.at.saturating_mul(HELD_PER_BYTE).saturating_add(HELD_BESIDES);
        match self.held > most {
            true => Err(format!("it asks for more than {HELD_PER_BYTE} bytes of memory for each of its own")),
            false => Ok(()),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        self.count(size_of::<Value>())?;
        self.stack.push(value);
        Ok(())
    }

    fn node(&mut self, node: Node) -> Result<Value, String> {
        if self.nodes.len() == MAX_NODES {
            return Err(format!("it makes more than {MAX_NODES} objects"));
        }
        self.hold(node.bytes())?;
        self.nodes.push(node);
        Ok(Value::Node(self.nodes.len() as u32 - 1))
    }

    fn push_node(&mut self, node: Node) -> Result<(), String> {
        let value = self.node(node)?;
        self.push(value)
    }

    /// Height below which nothing may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_or_mark(&mut self) -> Result<(), String> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    fn last(&mut self, count: usize) -> Result<Vec<Value>, String> {
        match self.stack.len().checked_sub(count) {
            Some(rest) if rest >= self.floor() => Ok(self.stack.split_off(rest)),
            _ => Err("its stack is empty".into()),
        }
    }

    fn since_mark(&mut self) -> Result<Vec<Value>, String> {
        let height = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(height))
    }

    fn top(&self) -> Result<Value, String> {
        match self.stack.len() > self.floor() {
            true => self.stack.last().copied().ok_or_else(|| "its stack is empty".to_string()),
            false => Err("its stack is empty".into()),
        }
    }

    fn top_node(&mut self) -> Result<&mut Node, String> {
        match self.top()? {
            Value::Node(number) => Ok(&mut self.nodes[number as usize]),
            _ => Err("a plain value takes no members".into()),
        }
    }
}
