//! A shell in a terminal, at which somebody types.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use loadmaster_tests::{binary, wait_until};

/// A shell that runs in a terminal of its own, and ends with this.
pub(super) struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts a shell whose home is this folder, with the built programs on its path.
    pub(super) fn start(shell: &str, home: &Path, address: &str) -> Self {
        let program = binary("loadmaster");
        let programs = program.parent().expect("it is in a folder").display().to_string();
        // The program of util-linux that gives a command a terminal.
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--command", shell, "/dev/null"])
            .env_clear()
            .env("HOME", home)
            .env("PATH", format!("{programs}:/usr/bin:/bin"))
            .env("LOADMASTER_ADDRESS", address)
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("script is a part of Debian");
        let keyboard = child.stdin.take().expect("a keyboard");
        let mut output = child.stdout.take().expect("a screen");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut piece = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..count]);
            }
        });
        Self { child, keyboard, screen }
    }

    pub(super) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush()).expect("it is typed");
    }

    /// All that was ever on the screen, without colours and moves of the cursor.
    pub(super) fn screen(&self) -> String {
        let bytes = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        plain(&String::from_utf8_lossy(&bytes))
    }

    /// Waits until it shows this after what it had shown before; where it does not, these keys are tried again.
    pub(super) fn shows(&mut self, wanted: &str, before: usize, keys: &str) {
        let mut looks = 0_u32;
        wait_until(&format!("{wanted:?} to be shown after {:?}", self.screen()), || {
            looks += 1;
            // A planner that was busy answers the next time.
            if looks.is_multiple_of(100) {
                self.types(keys);
            }
            self.screen().get(before..).is_some_and(|new| new.contains(wanted)).then_some(())
        });
    }
}

/// A text without what tells a terminal how to show it.
fn plain(shown: &str) -> String {
    let mut plain = String::new();
    let mut characters = shown.chars();
    while let Some(character) = characters.next() {
        match character {
            // `ESC [ … letter`, `ESC ] … BEL`, `ESC ( letter`, and those of one more character.
            '\u{1b}' => match characters.next() {
                Some('[') => drop(characters.find(char::is_ascii_alphabetic)),
                Some(']') => drop(characters.find(|&of| of == '\u{7}')),
                Some('(') => drop(characters.next()),
                _ => {}
            },
            '\r' | '\u{7}' | '\u{8}' => {}
            character => plain.push(character),
        }
    }
    plain
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
