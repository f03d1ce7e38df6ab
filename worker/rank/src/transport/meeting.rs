//! How the ranks of a run find each other: Unix sockets in the run's private folder.
//!
//! Of two ranks that have to do with each other the earlier one listens and the later one connects and
//! says who it is and why it calls. Earlier is the rank of the earlier stage, or of the same stage with
//! the smaller shard.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::frame::Hello;
use crate::error::RankError;
use crate::peers::{Address, Appointment, Tie};
use crate::progress;

/// How long to wait between two attempts to connect to a peer or to accept one.
const PAUSE: Duration = Duration::from_millis(2);

/// Meets everybody of `wanted`, who must want it too.
///
/// # Errors
/// When a peer does not connect before the deadline, another rank connects, or the folder takes no socket.
pub(crate) fn meet(
    folder: &Path,
    own: Address,
    wanted: &BTreeSet<Appointment>,
    deadline: Instant,
) -> Result<BTreeMap<Appointment, UnixStream>, RankError> {
    let mut met = BTreeMap::new();
    let mut awaited: BTreeSet<Appointment> = wanted.iter().copied().filter(|&(_, peer)| peer > own).collect();
    // Before this rank connects to others, so that ranks that connect meanwhile find a listener.
    let listener = if awaited.is_empty() { None } else { Some(listen(&socket(own, folder))?) };
    for &(tie, peer) in wanted.iter().filter(|&&(_, peer)| peer < own) {
        met.insert((tie, peer), call(&socket(peer, folder), tie, own, deadline)?);
    }
    let Some(listener) = listener else { return Ok(met) };
    while !awaited.is_empty() {
        let mut stream = accept(&listener, deadline)?;
        let Hello { tie, caller } = hear(&mut stream, deadline)?;
        if !awaited.remove(&(tie, caller)) {
            return Err(RankError::Protocol(format!(
                "{own} did not expect the connection of type {tie:?} from {caller}"
            )));
        }
        met.insert((tie, caller), stream);
    }
    Ok(met)
}

/// Where a rank listens.
fn socket(rank: Address, folder: &Path) -> PathBuf {
    folder.join(format!("rank-{}-{}.sock", rank.stage, rank.shard))
}

fn listen(path: &Path) -> Result<UnixListener, RankError> {
    UnixListener::bind(path)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| RankError::Other(format!("cannot listen on {}: {error}", path.display())))
}

/// Connects as soon as the other rank listens, and says hello.
fn call(path: &Path, tie: Tie, own: Address, deadline: Instant) -> Result<UnixStream, RankError> {
    loop {
        match UnixStream::connect(path) {
            Ok(mut stream) => {
                return Hello { tie, caller: own }
                    .write(&mut stream)
                    .map(|()| stream)
                    .map_err(|error| RankError::LostNeighbour(format!("lost {}: {error}", path.display())));
            }
            Err(error) => {
                pause(deadline).map_err(|()| {
                    RankError::LostNeighbour(format!("no process listens on {}: {error}", path.display()))
                })?;
            }
        }
    }
}

fn accept(listener: &UnixListener, deadline: Instant) -> Result<UnixStream, RankError> {
    let gone = |error: String| RankError::LostNeighbour(format!("no later rank connected: {error}"));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|error| gone(error.to_string()))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pause(deadline).map_err(|()| gone("time is up".to_owned()))?;
            }
            Err(error) => return Err(gone(error.to_string())),
        }
    }
}

/// Reads the hello of who has connected.
fn hear(stream: &mut UnixStream, deadline: Instant) -> Result<Hello, RankError> {
    let gone = |error: io::Error| RankError::LostNeighbour(format!("a later rank sent no hello: {error}"));
    let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
    stream.set_read_timeout(Some(left)).map_err(gone)?;
    let hello = Hello::read(stream).map_err(gone)?;
    stream.set_read_timeout(None).map_err(gone)?;
    Ok(hello)
}

fn pause(deadline: Instant) -> Result<(), ()> {
    if Instant::now() >= deadline {
        return Err(());
    }
    progress::tick();
    std::thread::sleep(PAUSE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn address(stage: u32, shard: u32) -> Address {
        Address { stage, shard }
    }

    /// Everybody who wants to meet does, whoever comes first, and each stream leads to who it should.
    #[test]
    fn ranks_meet_whoever_they_want_to() {
        let folder = tempfile::tempdir().unwrap();
        let appointments = [
            (Tie::Shard, address(0, 0), address(0, 1)),
            (Tie::Neighbour, address(0, 0), address(1, 0)),
            (Tie::SharedWeight, address(0, 0), address(1, 0)),
            (Tie::Neighbour, address(0, 1), address(1, 0)),
        ];
        let of = |own: Address| -> BTreeSet<Appointment> {
            appointments
                .iter()
                .filter_map(|&(tie, a, b)| match own {
                    own if own == a => Some((tie, b)),
                    own if own == b => Some((tie, a)),
                    _ => None,
                })
                .collect()
        };
        let ranks = [address(1, 0), address(0, 1), address(0, 0)];
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|own| {
                let (folder, wanted) = (folder.path().to_owned(), of(own));
                std::thread::spawn(move || {
                    let deadline = Instant::now() + Duration::from_secs(30);
                    let met = meet(&folder, own, &wanted, deadline).unwrap();
                    assert_eq!(met.keys().copied().collect::<BTreeSet<_>>(), wanted);
                    for mut stream in met.values() {
                        stream.write_all(&[own.stage as u8, own.shard as u8]).unwrap();
                    }
                    for ((_, peer), mut stream) in met {
                        let mut said = [0; 2];
                        stream.read_exact(&mut said).unwrap();
                        assert_eq!(said, [peer.stage as u8, peer.shard as u8]);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }

    /// A rank that was not expected is refused, and one that does not come is not waited for for ever.
    #[test]
    fn strangers_are_refused_and_patience_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (own, stranger) = (address(0, 0), address(3, 0));
        let wanted = BTreeSet::from([(Tie::Neighbour, address(1, 0))]);
        let path = socket(own, folder.path());
        let caller = std::thread::spawn(move || {
            call(&path, Tie::Neighbour, stranger, Instant::now() + Duration::from_secs(30)).unwrap()
        });
        let error = meet(folder.path(), own, &wanted, Instant::now() + Duration::from_secs(30)).unwrap_err();
        assert!(
            matches!(&error, RankError::Protocol(text) if text.contains("shard 0 of stage 3")),
            "{error}"
        );
        drop(caller.join().unwrap());

        let alone = tempfile::tempdir().unwrap();
        let error = meet(alone.path(), own, &wanted, Instant::now()).unwrap_err();
        assert!(matches!(error, RankError::LostNeighbour(_)), "{error}");
    }
}
