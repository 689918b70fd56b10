//! Checks that each file of models also runs beside a pager, or has no page that can be swapped out.

use std::fs;
use std::path::Path;

const WITHOUT_PAGES: [(&str, &str); 4] = [
    ("frames_and_thieves.rs", "the last frames: a CPU that brings a page back wants one of them"),
    ("summaries.rs", "blocks and their trees alone"),
    ("clusters.rs", "claims of frames by CPUs of a cluster"),
    ("tree_and_readers.rs", "the tree of VMAs alone"),
];

#[test]
fn each_has_a_pager_or_no_pages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut nr_without = 0;
    for path in files.filter(|path| path.extension().is_some_and(|kind| kind == "rs")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains("use common::") {
            continue;
        }
        let names = ["Pager::SwapsOut", "Pager::Fails"];
        let has_pager = text.contains("beside_pagers!") || names.iter().all(|pager| text.contains(pager));
        let is_without = WITHOUT_PAGES.iter().any(|(other, _)| *other == name);
        nr_without += usize::from(is_without);
        assert!(has_pager != is_without, "{name}: should have both pagers, or say why it has none");
    }
    assert_eq!(nr_without, WITHOUT_PAGES.len(), "a file is listed that is not there");
}
