//! The `loadmaster` program: the planner (`loadmaster serve`) and its command line.

use std::process::ExitCode;

use loadmaster::program::{Program, answer_shell};
use loadmaster_cli::{Exit, report_startup};
use mimalloc::MiMalloc;

/// Gives memory back to the system once it is free. The C library's allocator keeps what a thread has freed for that thread: after a
/// large search the planner would be as large as that search, and after some of them several times so.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Before anything else is done or said: the shell reads what is printed.
    answer_shell();
    let program = Program::read();
    // The planner needs several threads; a client verb is done before a second one would help, but
    // one kind of runtime is one thing less that differs between them.
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(program.run());
            // Whatever a detached client left behind must not hold up its end.
            runtime.shutdown_background();
            exit.into()
        }
        Err(error) => {
            report_startup(&error);
            Exit::ServerError.into()
        }
    }
}
