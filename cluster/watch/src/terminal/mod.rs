//! Runs in a terminal.

mod draw;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

pub use draw::{Screen, draw};

use crate::{RunView, Runs, WatchError, now};

/// How often keys are looked for, and how many times that the runs are looked at.
const KEYS_EVERY: Duration = Duration::from_millis(250);
const LOOKS_EVERY: u32 = 4;

/// Draws `runs` until `q` is pressed, or `stop` says so.
///
/// # Errors
///
/// The terminal cannot be drawn on.
pub fn show(mut runs: Runs, stop: &dyn Fn() -> bool) -> Result<(), WatchError> {
    let drawing = |source| WatchError::Terminal { source };
    let mut terminal = ratatui::try_init().map_err(drawing)?;
    let shown = follow(&mut terminal, &mut runs, stop);
    ratatui::restore();
    shown.map_err(drawing)
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    runs: &mut Runs,
    stop: &dyn Fn() -> bool,
) -> std::io::Result<()> {
    let mut screen = Screen::default();
    let mut views: Vec<RunView> = Vec::new();
    for round in 0u32.. {
        if round.is_multiple_of(LOOKS_EVERY) {
            views = runs.look().cloned().collect();
        }
        terminal.draw(|frame| draw(frame, &views, &screen, now()))?;
        let over = match keys()? {
            // Several may come at once, and the library keeps those that are not taken.
            Keys::Some => {
                let mut quit = false;
                while !quit && event::poll(Duration::ZERO)? {
                    quit = quits(&event::read()?, &mut screen, views.len());
                }
                quit
            }
            Keys::None => false,
            Keys::Gone => true,
        };
        if over || stop() {
            break;
        }
    }
    Ok(())
}

/// What the terminal has for us.
enum Keys {
    Some,
    None,
    /// The terminal is not there any more.
    Gone,
}

/// Waits for keys, until it is time to draw again. The library that reads them would not come back from a terminal that was closed.
fn keys() -> io::Result<Keys> {
    if !io::stdin().is_terminal() {
        return Ok(if event::poll(KEYS_EVERY)? { Keys::Some } else { Keys::None });
    }
    let mut terminal = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor is asked for, and there is one.
    let ready = unsafe { libc::poll(&mut terminal, 1, KEYS_EVERY.as_millis() as libc::c_int) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // A signal, such as that of another size.
        return if error.kind() == io::ErrorKind::Interrupted { Ok(Keys::None) } else { Err(error) };
    }
    Ok(match terminal.revents {
        0 => Keys::None,
        events if events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 => Keys::Gone,
        _ => Keys::Some,
    })
}

/// Takes a key; true where it ends the view.
fn quits(event: &Event, screen: &mut Screen, runs: usize) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind != KeyEventKind::Press {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('l') => screen.logarithmic = !screen.logarithmic,
        KeyCode::Down | KeyCode::Tab => screen.selected = (screen.selected + 1) % runs.max(1),
        KeyCode::Up | KeyCode::BackTab => screen.selected = (screen.selected + runs.max(1) - 1) % runs.max(1),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_choose_a_run_a_scale_and_the_end() {
        let mut screen = Screen::default();
        let mut press = |code| quits(&Event::Key(KeyEvent::from(code)), &mut screen, 3);
        assert!(!press(KeyCode::Up) && !press(KeyCode::Char('l')) && !press(KeyCode::Char('c')));
        assert!(press(KeyCode::Char('q')) && press(KeyCode::Esc));
        assert_eq!((screen.selected, screen.logarithmic), (2, true));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(quits(&Event::Key(interrupt), &mut screen, 3));
    }
}
