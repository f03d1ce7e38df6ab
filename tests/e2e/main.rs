//! Loadmaster from the outside: one module for each thing that it promises.
//!
//! `cargo nextest run -p loadmaster-tests faults::` runs those of one module.

mod accuracy;
mod asked_again;
mod bad_documents;
mod bad_input;
mod bindings;
mod campaigns;
mod certificates;
mod chunk_plans;
mod chunked;
mod clusters;
mod command_line;
mod completion;
mod component;
mod documents;
mod errors;
mod examples;
mod exports;
mod faults;
mod frameworks;
mod hostile;
mod imported;
mod in_chunks;
mod kept;
mod lists;
mod log;
mod managed;
mod memory_actions;
mod memory_objectives;
mod memory_of_several;
mod models;
mod over_time;
mod pages;
mod pictures;
mod pipedream;
mod predict;
mod recommend;
mod results;
mod retention;
mod service;
mod shared_database;
mod slice;
mod slurm;
mod trained;
mod trials;
