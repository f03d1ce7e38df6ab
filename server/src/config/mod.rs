//! Settings of `loadmaster serve` and `loadmaster migrate`.

mod database;
mod serve;

pub use database::{DatabaseArgs, DatabaseSource};
pub use serve::{LogFormat, LoggingArgs, MigrateArgs, RetentionArgs, ServeArgs};
