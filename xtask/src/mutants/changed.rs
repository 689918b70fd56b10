//! The lines of the last commits, and of the work that is in no commit yet.

use super::generate::Generated;
use crate::shell::{self, Line};
use std::collections::HashMap;
use std::ops::Range;

/// Commits whose lines count. The gate looks at each line in about as many runs.
const NR_COMMITS: u64 = 10;

/// Lines by file.
pub struct Changed(HashMap<String, Vec<Range<usize>>>);

impl Changed {
    /// As git says. A shallow clone has the commits it has; one commit alone does not say what it changed: then `None`.
    pub fn read() -> Result<Option<Changed>, String> {
        let count = shell::output_of(&Line::new("git", "rev-list --count --first-parent HEAD"))?;
        let nr: u64 = count.trim().parse().map_err(|e| format!("git rev-list: {e}"))?;
        let Some(nr_back) = nr_back(nr) else { return Ok(None) };
        let arguments = format!("diff --unified=0 --no-color --no-ext-diff HEAD~{nr_back} -- crates");
        Ok(Some(Changed(lines(&shell::output_of(&Line::new("git", &arguments))?))))
    }

    pub fn has(&self, mutant: &Generated) -> bool {
        let last = mutant.line + mutant.to.matches('\n').count();
        let overlaps = |range: &Range<usize>| range.start <= last && mutant.line < range.end;
        self.0.get(&mutant.file).is_some_and(|ranges| ranges.iter().any(overlaps))
    }
}

fn nr_back(nr_there: u64) -> Option<u64> {
    Some(nr_there.saturating_sub(1).min(NR_COMMITS)).filter(|nr| *nr > 0)
}

/// Lines that a diff adds, by file.
fn lines(diff: &str) -> HashMap<String, Vec<Range<usize>>> {
    let mut files: HashMap<String, Vec<Range<usize>>> = HashMap::new();
    let mut file = None;
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ ") {
            file = name.strip_prefix("b/");
        } else if let (Some(file), Some(range)) = (file, added(line)) {
            files.entry(file.into()).or_default().push(range);
        }
    }
    files
}

/// From `@@ -12,3 +14,2 @@`.
fn added(line: &str) -> Option<Range<usize>> {
    let numbers = line.strip_prefix("@@ ")?.split(' ').nth(1)?.strip_prefix('+')?;
    let (first, nr) = numbers.split_once(',').unwrap_or((numbers, "1"));
    let (first, nr): (usize, usize) = (first.parse().ok()?, nr.parse().ok()?);
    Some(first..first + nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_diff() {
        let diff = "\
diff --git a/a.rs b/a.rs
--- a/a.rs
+++ b/a.rs
@@ -1,2 +3,2 @@ fn x() {
+one
@@ -9 +10 @@
+two
@@ -20,2 +21,0 @@
--- a/gone.rs
+++ /dev/null
@@ -1 +0,0 @@
";
        let found = lines(diff);
        assert_eq!(found.len(), 1);
        assert_eq!(found["a.rs"], [3..5, 10..11, 21..21]);
    }

    #[test]
    fn a_shallow_clone_has_fewer_commits() {
        assert_eq!([0, 1, 2, 11, 500].map(nr_back), [None, None, Some(1), Some(10), Some(10)]);
    }
}
