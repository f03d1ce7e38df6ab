mod acted;
mod oracle;
mod promise;
mod replay;
mod seconds;
mod tapes;
