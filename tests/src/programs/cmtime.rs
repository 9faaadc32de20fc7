//! The table that `cmtime` prints: what all connections took for each step, made and ended by one
//! client.

/// Milliseconds that one step took for all connections together.
#[must_use]
pub fn step_ms(table: &str, step: &str) -> Option<f64> {
    steps(table).find(|(name, _)| *name == step).map(|(_, ms)| ms)
}

/// Connections a second by the whole table: from creating an identifier over addresses, routes,
/// queue pairs, connecting and disconnecting to destroying.
#[must_use]
pub fn whole_per_second(table: &str, connections: usize) -> Option<f64> {
    step_ms(table, "destroy")?;
    Some(connections as f64 * 1e3 / steps(table).map(|(_, ms)| ms).sum::<f64>())
}

/// Connections a second, only connecting and disconnecting.
#[must_use]
pub fn connected_per_second(table: &str, connections: usize) -> Option<f64> {
    Some(connections as f64 * 1e3 / (step_ms(table, "connect")? + step_ms(table, "disconnect")?))
}

fn steps(table: &str) -> impl Iterator<Item = (&str, f64)> {
    table.lines().filter_map(|line| {
        let (name, figures) = line.split_once(':')?;
        Some((name.trim(), figures.split_whitespace().next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_table() {
        let table = "step              total ms     max ms     min us  us / conn\n\
                     create id    :        1.00       0.04       5.00      10.00\n\
                     connect      :       30.00       9.00      50.00     300.00\n\
                     disconnect   :       10.00       1.00      20.00     100.00\n\
                     destroy      :        9.00       0.10       9.00      90.00\n";
        assert_eq!(step_ms(table, "connect"), Some(30.0));
        assert_eq!(connected_per_second(table, 100), Some(2_500.0));
        assert_eq!(whole_per_second(table, 100), Some(2_000.0));
        assert_eq!(whole_per_second("cmtime: failed\nconnect : 1", 1), None);
    }
}
