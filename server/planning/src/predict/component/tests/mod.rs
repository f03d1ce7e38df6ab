mod promise;
mod replay;
mod seconds;
