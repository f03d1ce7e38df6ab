//! Arrangements, compositions and combinations: all of them, by recursion.

/// Every order of so many of these, all different.
pub fn arrangements<T: Clone>(items: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let beginning = |index: usize| {
        let others = [&items[..index], &items[index + 1..]].concat();
        let behind = move |order: Vec<T>| [&items[index..=index], &order].concat();
        arrangements(&others, count - 1).into_iter().map(behind)
    };
    (0..items.len()).flat_map(beginning).collect()
}

/// Every way to cut so many layers into so many stages, as how many layers each has.
pub fn compositions(layers: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![layers]];
    }
    let beginning = |first: usize| {
        let behind = move |rest: Vec<usize>| [vec![first], rest].concat();
        compositions(layers - first, stages - 1).into_iter().map(behind)
    };
    (1..=layers - (stages - 1)).flat_map(beginning).collect()
}

/// Every choice of one of each list.
pub fn combinations<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |begun: Vec<Vec<T>>, list| {
        let longer =
            |begun: Vec<T>| list.iter().map(move |own| [&begun[..], std::slice::from_ref(own)].concat());
        begun.into_iter().flat_map(longer).collect()
    })
}

/// Every way to recompute some of so many layers in runs, as the first and the last layer of each; the first layer has this number.
pub fn recomputed_runs(first: usize, layers: usize) -> Vec<Vec<(usize, usize)>> {
    if layers == 0 {
        return vec![Vec::new()];
    }
    let recomputed = |run: usize| {
        let behind = move |rest: Vec<_>| [vec![(first, first + run - 1)], rest].concat();
        recomputed_runs(first + run, layers - run).into_iter().map(behind)
    };
    let kept = recomputed_runs(first + 1, layers - 1);
    kept.into_iter().chain((1..=layers).flat_map(recomputed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_counted() {
        assert_eq!(arrangements(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 1], [2, 3], [3, 1], [3, 2]]);
        assert_eq!(arrangements(&['a'], 2), [['a'; 0]; 0]);
        assert_eq!(compositions(4, 2), [[1, 3], [2, 2], [3, 1]]);
        assert_eq!(combinations(&[vec![1, 2], vec![3], vec![4, 5]]).len(), 4);
        // Kept, or recomputed with the layer before or apart from it: 1, 2, 5, 13, ...
        assert_eq!(
            (0..5).map(|layers| recomputed_runs(0, layers).len()).collect::<Vec<_>>(),
            [1, 2, 5, 13, 34]
        );
    }
}
