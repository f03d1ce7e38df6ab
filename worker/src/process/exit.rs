//! How a process ended, in words.

use nix::sys::signal::Signal;

use super::tail::last_bytes;

/// Exit codes of a program that could not be loaded: 127 is the loader's and the shell's, and what the shell and
/// `env` say of a program that is not there.
pub(crate) const EXIT_NOT_LOADED: [i32; 2] = [126, 127];
/// Most bytes of a process's own words in a message.
const QUOTE: usize = 1_500;

/// `SIGSEGV`, or the number where the signal has no name.
pub(crate) fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

/// The signal that ended a process, and who may have sent it.
pub(crate) fn killed_by(signal: i32, kernel_killed: bool) -> String {
    let who = match (signal == Signal::SIGKILL as i32, kernel_killed) {
        (false, _) => "",
        (true, true) => {
            " while the kernel's out-of-memory killer was active (the node is short of CPU memory: offer fewer or \
             smaller CPU slots)"
        }
        (true, false) => ", which another process (kill -9) or the out-of-memory killer of a container sent",
    };
    format!("{}{who}", signal_name(signal))
}

/// The end of a process's own words, to be put behind a message; nothing where it said nothing.
pub(crate) fn quoted(words: &str) -> String {
    let words = words.trim();
    if words.is_empty() { String::new() } else { format!(": {}", last_bytes(words, QUOTE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_its_name_or_its_number() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
    }
}
