//! Who gets what, where not everything suits everybody: a maximum matching by augmenting paths.

use std::collections::VecDeque;

/// One of `given` for each of `asking`, each once; none where there are not as many that suit.
pub(super) fn maximum_matching(
    asking: usize,
    given: usize,
    suits: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    if asking > given {
        return None;
    }
    let mut owner: Vec<Option<usize>> = vec![None; given];
    for next in 0..asking {
        // Breadth first: each is reached from the one that would give it up.
        let mut reached: Vec<Option<usize>> = vec![None; given];
        let mut queue = VecDeque::from([next]);
        let mut free = None;
        'search: while let Some(asking) = queue.pop_front() {
            for one in 0..given {
                if reached[one].is_some() || !suits(asking, one) {
                    continue;
                }
                reached[one] = Some(asking);
                match owner[one] {
                    None => {
                        free = Some(one);
                        break 'search;
                    }
                    Some(other) => queue.push_back(other),
                }
            }
        }
        let mut one = free?;
        loop {
            let asking = reached[one]?;
            let before = owner.iter().position(|of| *of == Some(asking));
            owner[one] = Some(asking);
            match before {
                Some(given_up) => one = given_up,
                None => break,
            }
        }
    }
    let mut found = vec![0; asking];
    for (one, asking) in owner.iter().enumerate() {
        if let Some(asking) = asking {
            found[*asking] = one;
        }
    }
    Some(found)
}
