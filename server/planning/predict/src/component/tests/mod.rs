mod acted;
mod acting;
mod chunked;
mod oracle;
mod promise;
mod replay;
mod seconds;
mod traces;
