mod imported;
mod stored;
