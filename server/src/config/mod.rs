//! Settings of `loadmaster serve` and `loadmaster migrate`, one file per concern.

mod database;
mod logging;
mod retention;
mod serve;

pub use database::{DatabaseArgs, DatabaseSource};
pub use logging::{LogFormat, LoggingArgs};
pub use retention::RetentionArgs;
pub use serve::{MigrateArgs, ServeArgs};
