use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::SharedBytes;

/// Members that may be looked at for each byte of a pickle. Whoever reads a vocabulary or a model looks at each a few times.
const LOOKS_PER_BYTE: usize = 16;
/// Members that may be looked at besides: keys that are looked for in a file of a few bytes.
const LOOKS_BESIDES: usize = 1 << 14;
/// Bytes of a text that count as a look at a member: whoever asks for it may copy it.
const TEXT_PER_LOOK: usize = 4;

/// A value as the machine holds it: small ones in place, the rest by number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Node(u32),
}

/// What does not fit into a [`Value`]. Nodes refer to each other by number, so that cycles and deep nesting cost
/// nothing to hold or to drop.
#[derive(Debug)]
pub(super) enum Node {
    /// Two's complement, little-endian, longer than 8 bytes.
    Big(Box<[u8]>),
    Bytes(SharedBytes),
    Str(Arc<str>),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Set(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// Its module and its name in there.
    Global(Arc<str>, Arc<str>),
    Object(Box<Object>),
    Persistent(Value),
}

impl Node {
    /// Bytes that the node takes, with what it alone owns. What is added to it later is counted where it is pushed.
    pub fn bytes(&self) -> usize {
        let owned = match self {
            Node::Big(bytes) => bytes.len(),
            Node::Str(text) => text.len(),
            // Pieces of the file or, once for each time they stand there, lines of it; names may be shared.
            Node::Bytes(_) | Node::Global(..) | Node::Persistent(_) => 0,
            Node::List(members) | Node::Tuple(members) | Node::Set(members) => size_of_val(&members[..]),
            Node::Dict(pairs) => size_of_val(&pairs[..]),
            Node::Object(_) => size_of::<Object>(),
        };
        size_of::<Node>() + owned
    }
}

/// What a pickle wants made by calling something.
#[derive(Debug)]
pub(super) struct Object {
    pub class: Value,
    pub args: Value,
    pub state: Option<Value>,
    pub items: Vec<(Value, Value)>,
    pub elements: Vec<Value>,
}

/// The result of reading one pickle.
#[derive(Debug)]
pub struct Pickle {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Value,
    pub(super) length: usize,
    /// Members that were looked at so far. A list that a pickle holds once may stand in it any number of times, for two bytes each: the
    /// work of reading all of them would be out of proportion to the file.
    pub(super) looks: AtomicUsize,
}

impl Pickle {
    /// Reads one pickle from the start of `input`; what follows it is left alone.
    pub fn parse(input: &SharedBytes) -> Result<Pickle, String> {
        super::machine::run(input)
    }

    /// The value the pickle is of.
    pub fn root(&self) -> View<'_> {
        View { pickle: self, value: self.root }
    }

    /// Every reference to data outside the pickle.
    pub(crate) fn persistent(&self) -> impl Iterator<Item = View<'_>> {
        let places = self.nodes.iter().enumerate();
        let places = places.filter(|(_, node)| matches!(node, Node::Persistent(_)));
        places.map(|(place, _)| View { pickle: self, value: Value::Node(place as u32) })
    }

    /// Bytes that the pickle takes of its input.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Counts `members` that are looked at; `None` where that is more than the pickle's size allows.
    fn look_at(&self, members: usize) -> Option<()> {
        let before = self.looks.fetch_add(members, Ordering::Relaxed);
        (before.saturating_add(members) <= self.most_looks()).then_some(())
    }

    fn most_looks(&self) -> usize {
        self.length.saturating_mul(LOOKS_PER_BYTE).saturating_add(LOOKS_BESIDES)
    }

    /// Refuses a pickle of whose members more were looked at than its size allows: those after that were taken for absent.
    ///
    /// # Errors
    ///
    /// That it is so.
    pub(crate) fn check_looks(&self) -> Result<(), String> {
        match self.looks.load(Ordering::Relaxed) > self.most_looks() {
            true => Err(format!(
                "its {} bytes refer to the same values again and again, more often than any model or vocabulary",
                self.length
            )),
            false => Ok(()),
        }
    }
}

/// One value of a pickle.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pickle: &'a Pickle,
    value: Value,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A longer integer: two's complement, little-endian.
    Big(&'a [u8]),
    /// A float.
    Float(f64),
    /// Bytes; in a Python 2 pickle also text.
    Bytes(&'a [u8]),
    /// Text.
    Str(&'a str),
    /// A list; see [`View::elements`].
    List,
    /// A tuple; see [`View::elements`].
    Tuple,
    /// A set; see [`View::elements`].
    Set,
    /// A dict in its order; see [`View::pairs`].
    Dict,
    /// A class or function, named and not looked up.
    Global {
        /// Its module.
        module: &'a str,
        /// Its name in there.
        name: &'a str,
    },
    /// Something that a call would have made.
    Object,
    /// A reference to data outside the pickle; see [`View::persistent_id`].
    Persistent,
}

impl<'a> View<'a> {
    fn at(self, value: Value) -> View<'a> {
        View { pickle: self.pickle, value }
    }

    fn node(self) -> Option<&'a Node> {
        match self.value {
            Value::Node(number) => self.pickle.nodes.get(number as usize),
            _ => None,
        }
    }

    fn object(self) -> Option<&'a Object> {
        match self.node() {
            Some(Node::Object(object)) => Some(object),
            _ => None,
        }
    }

    /// Bytes that the whole pickle takes. A list may stand in it any number of times, for two bytes each: what is made of all of them has to be
    /// held against this.
    pub fn pickle_bytes(self) -> usize {
        self.pickle.length
    }

    /// Refuses a pickle that makes more work than its size allows; to be asked after all of it was read.
    ///
    /// # Errors
    ///
    /// That it does.
    pub fn check_work(self) -> Result<(), String> {
        self.pickle.check_looks()
    }

    /// Counts `bytes` that are copied because of the value, as those of a text that is asked for.
    pub(crate) fn count_copy(self, bytes: usize) {
        // Whether it is too much shows in `check_work`.
        let _ = self.pickle.look_at(bytes / TEXT_PER_LOOK);
    }

    /// Number of the value's node, the same wherever the pickle refers to it; `None` for small values.
    pub fn identity(self) -> Option<u32> {
        match self.value {
            Value::Node(number) => Some(number),
            _ => None,
        }
    }

    /// What the value is.
    pub fn kind(self) -> Kind<'a> {
        match self.value {
            Value::None => Kind::None,
            Value::Bool(value) => Kind::Bool(value),
            Value::Int(value) => Kind::Int(value),
            Value::Float(value) => Kind::Float(value),
            Value::Node(_) => match self.node() {
                Some(Node::Big(bytes)) => Kind::Big(bytes),
                Some(Node::Bytes(bytes)) => Kind::Bytes(bytes),
                Some(Node::Str(text)) => Kind::Str(text),
                Some(Node::List(_)) => Kind::List,
                Some(Node::Tuple(_)) => Kind::Tuple,
                Some(Node::Set(_)) => Kind::Set,
                Some(Node::Dict(_)) => Kind::Dict,
                Some(Node::Global(module, name)) => Kind::Global { module, name },
                Some(Node::Object(_)) => Kind::Object,
                Some(Node::Persistent(_)) => Kind::Persistent,
                None => Kind::None,
            },
        }
    }

    /// Text; bytes count where they are UTF-8, as Python 2 keeps text in them.
    pub fn text(self) -> Option<&'a str> {
        let bytes = match self.kind() {
            Kind::Str(text) => text.as_bytes(),
            Kind::Bytes(bytes) => bytes,
            _ => return None,
        };
        self.pickle.look_at(bytes.len() / TEXT_PER_LOOK)?;
        match self.kind() {
            Kind::Str(text) => Some(text),
            _ => std::str::from_utf8(bytes).ok(),
        }
    }

    /// Whether the value is this text.
    fn is_text(self, text: &str) -> bool {
        match self.kind() {
            Kind::Str(found) => found == text,
            Kind::Bytes(found) => found == text.as_bytes(),
            _ => false,
        }
    }

    /// Bytes as they can be shared, also where Python 3 spells them for an older protocol.
    pub fn bytes(self) -> Option<SharedBytes> {
        match self.node() {
            Some(Node::Bytes(bytes)) => Some(bytes.clone()),
            Some(Node::Object(_)) => self.encoded_bytes(),
            _ => None,
        }
    }

    /// An integer: Python's or NumPy's.
    pub fn int(self) -> Option<i64> {
        match self.value {
            Value::Int(value) => Some(value),
            Value::Bool(value) => Some(i64::from(value)),
            _ => match self.numpy_scalar()? {
                Value::Int(value) => Some(value),
                _ => None,
            },
        }
    }

    /// An integer that is not negative.
    pub fn size(self) -> Option<usize> {
        usize::try_from(self.int()?).ok()
    }

    /// A number: Python's or NumPy's.
    pub fn float(self) -> Option<f64> {
        match self.value {
            Value::Float(value) => Some(value),
            _ => match self.numpy_scalar() {
                Some(Value::Float(value)) => Some(value),
                _ => self.int().map(|value| value as f64),
            },
        }
    }

    /// A truth value.
    pub fn truth(self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => self.int().map(|value| value != 0),
        }
    }

    /// Members of a list, tuple, set or of an object made from one, such as `torch.Size`.
    pub fn elements(self) -> Option<impl ExactSizeIterator<Item = View<'a>>> {
        let values = match self.node()? {
            Node::List(values) | Node::Tuple(values) | Node::Set(values) => values,
            Node::Object(object) if !object.elements.is_empty() => &object.elements,
            Node::Object(object) => match self.at(object.args).node()? {
                // One argument, a sequence.
                Node::Tuple(args) if args.len() == 1 => match self.at(args[0]).node()? {
                    Node::List(values) | Node::Tuple(values) | Node::Set(values) => values,
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        };
        self.pickle.look_at(values.len())?;
        Some(values.iter().map(move |value| self.at(*value)))
    }

    /// Keys and values of a dict or of an object made like one (`OrderedDict`, `defaultdict`, `Counter`), in order.
    pub fn pairs(self) -> Option<Vec<(View<'a>, View<'a>)>> {
        let view = |pairs: &'a [(Value, Value)]| -> Option<Vec<_>> {
            self.pickle.look_at(pairs.len())?;
            Some(pairs.iter().map(|(key, value)| (self.at(*key), self.at(*value))).collect())
        };
        let object = match self.node()? {
            Node::Dict(pairs) => return view(pairs),
            Node::Object(object) => object,
            _ => return None,
        };
        let (_, class) = self.class()?;
        if !class.ends_with("Dict")
            && !class.ends_with("dict")
            && class != "Counter"
            && object.items.is_empty()
        {
            return None;
        }
        let mut all = Vec::new();
        if let Some(Node::Tuple(args)) = self.at(object.args).node()
            && let Some(first) = args.first()
        {
            match self.at(*first).node() {
                Some(Node::Dict(pairs)) => all.extend(view(pairs)?),
                // Python 2 gives an OrderedDict a list of pairs.
                Some(Node::List(list)) => {
                    self.pickle.look_at(list.len())?;
                    all.extend(list.iter().filter_map(|pair| {
                        let mut pair = self.at(*pair).elements()?;
                        Some((pair.next()?, pair.next()?))
                    }));
                }
                _ => {}
            }
        }
        all.extend(view(&object.items)?);
        Some(all)
    }

    /// The value of a text key of a dict.
    pub fn get(self, key: &str) -> Option<View<'a>> {
        match self.node()? {
            // The usual case needs no list of all pairs.
            Node::Dict(pairs) => {
                self.pickle.look_at(pairs.len())?;
                let found = pairs.iter().rev().find(|(k, _)| self.at(*k).is_text(key))?;
                Some(self.at(found.1))
            }
            _ => self.pairs()?.into_iter().rev().find(|(k, _)| k.is_text(key)).map(|(_, v)| v),
        }
    }

    /// An attribute of an object: of its state, or of the pair of dicts a state may be.
    pub fn attribute(self, name: &str) -> Option<View<'a>> {
        let state = self.at(self.object()?.state?);
        match state.node()? {
            Node::Tuple(parts) => {
                self.pickle.look_at(parts.len())?;
                parts.iter().find_map(|part| self.at(*part).get(name))
            }
            _ => state.get(name),
        }
    }

    /// A module inside a pickled module.
    pub fn module(self, name: &str) -> Option<View<'a>> {
        self.attribute("_modules")?.get(name)
    }

    /// All attributes of an object that have text names.
    pub fn attributes(self) -> Vec<(&'a str, View<'a>)> {
        let Some(state) = self.object().and_then(|object| object.state) else { return Vec::new() };
        let pairs = self.at(state).pairs().unwrap_or_default();
        pairs.into_iter().filter_map(|(key, value)| Some((key.text()?, value))).collect()
    }

    /// Module and name of an object's class or of the function that would have made it.
    pub fn class(self) -> Option<(&'a str, &'a str)> {
        let mut class = self.at(self.object()?.class);
        if let Some(Node::Persistent(id)) = class.node() {
            // torch.save of 2019 wraps the classes of modules: ('module', class, file, source).
            class = self.at(*id).elements()?.nth(1)?;
        }
        let named = match class.kind() {
            Kind::Global { module, name } => (module, name),
            _ => return None,
        };
        // Protocols 0 and 1 make objects with copy_reg._reconstructor(class, base, state).
        if matches!(named, ("copy_reg" | "copyreg", "_reconstructor")) {
            let real = self.args()?.elements()?.next()?;
            let real = match real.node() {
                Some(Node::Persistent(id)) => real.at(*id).elements()?.nth(1)?,
                _ => real,
            };
            if let Kind::Global { module, name } = real.kind() {
                return Some((module, name));
            }
        }
        Some(named)
    }

    /// Arguments of the call that would have made an object: a tuple.
    pub fn args(self) -> Option<View<'a>> {
        Some(self.at(self.object()?.args))
    }

    /// State that the object would have been given.
    pub fn state(self) -> Option<View<'a>> {
        Some(self.at(self.object()?.state?))
    }

    /// The id by which a pickle refers to data outside it.
    pub fn persistent_id(self) -> Option<View<'a>> {
        match self.node()? {
            Node::Persistent(id) => Some(self.at(*id)),
            _ => None,
        }
    }
}
