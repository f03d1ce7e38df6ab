//! Least squares, for layer times from iteration times.

/// The numbers x for which the rows · x come closest to the targets, each row weighed so that relative errors
/// count: normal equations, solved by elimination with pivoting. None where the rows do not tell.
pub(super) fn least_squares(rows: &[(Vec<f64>, f64)]) -> Option<Vec<f64>> {
    let unknowns = rows.first()?.0.len();
    // The last column is the right-hand side.
    let mut system = vec![vec![0.0; unknowns + 1]; unknowns];
    for (row, target) in rows {
        let weighed: Vec<f64> = row.iter().chain([target]).map(|value| value / target).collect();
        for (line, &factor) in system.iter_mut().zip(&weighed) {
            line.iter_mut().zip(&weighed).for_each(|(cell, value)| *cell += factor * value);
        }
    }
    for column in 0..unknowns {
        let pivot = (column..unknowns)
            .max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))?;
        system.swap(column, pivot);
        let line = system[column].clone();
        if line[column].abs() < 1e-12 {
            return None;
        }
        for (_, other) in system.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = other[column] / line[column];
            other.iter_mut().zip(&line).for_each(|(cell, value)| *cell -= factor * value);
        }
    }
    Some(system.iter().enumerate().map(|(index, line)| line[unknowns] / line[index]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows without noise give back what they were made of; rows that say the same twice tell nothing.
    #[test]
    fn exact_rows_are_solved_and_equal_ones_are_not() {
        let truth = [2.0, 0.5, 7.0];
        let row = |row: [f64; 3]| (row.to_vec(), row.iter().zip(truth).map(|(a, b)| a * b).sum());
        let rows = [row([1.0, 1.0, 1.0]), row([2.0, 1.0, 1.0]), row([1.0, 8.0, 1.0]), row([4.0, 2.0, 1.0])];
        let found = least_squares(&rows).unwrap();
        assert!(found.iter().zip(truth).all(|(found, truth)| (found - truth).abs() < 1e-9), "{found:?}");
        assert_eq!(least_squares(&[rows[0].clone(), rows[0].clone()]), None);
        assert_eq!(least_squares(&[]), None);
    }
}
