mod acted;
mod acting;
mod oracle;
mod promise;
mod replay;
mod seconds;
mod tapes;
