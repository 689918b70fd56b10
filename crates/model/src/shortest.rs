//! Shortens a sequence while it still fails.

use crate::op::Op;

/// Drops steps, first many at once, as long as `look` finds something in what is
/// left. It gives what it has found, and how many of the steps that took. The
/// last finding comes with its steps.
pub fn shortest<T>(mut ops: Vec<Op>, mut found: T, mut look: impl FnMut(&[Op]) -> Option<(T, usize)>) -> (Vec<Op>, T) {
    let mut chunk = ops.len() / 2;
    while chunk > 0 {
        let (mut at, mut dropped) = (0, false);
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            match look(&fewer) {
                Some((other, nr_steps)) => {
                    fewer.truncate(nr_steps);
                    (ops, found, dropped) = (fewer, other, true);
                }
                None => at += chunk,
            }
        }
        if !dropped || chunk > 1 {
            chunk /= 2;
        }
    }
    (ops, found)
}

#[cfg(test)]
mod tests {
    use super::shortest;
    use crate::op::{Call, Op};

    /// The search fails if both steps are there, in this order.
    #[test]
    fn what_is_not_needed_goes() {
        let step = |i: u64| Op::new(0, Call::Brk, &[i]);
        let look = |ops: &[Op]| {
            let first = ops.iter().position(|op| op.args[0] == 13)?;
            let second = ops[first..].iter().position(|op| op.args[0] == 57)?;
            Some(((), first + second + 1))
        };
        let (ops, ()) = shortest((0..100).map(step).collect(), (), look);
        assert_eq!(ops, [step(13), step(57)]);
    }
}
