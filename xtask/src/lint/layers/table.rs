//! The layers of the core and of the reference kernel, bottom up. A file may name its own layer and those
//! above it in this table.
//!
//! An entry is a file or a folder below `crates/softfault/src/`, without `.rs`;
//! the longest that fits a file counts. `space/mod` is the file `space/mod.rs`
//! alone, `space` is all that has no entry of its own.

/// A layer: a name for messages, and what belongs to it.
pub struct Layer {
    pub name: &'static str,
    pub members: &'static [&'static str],
}

/// The checks of a crate.
pub struct Rules<'a> {
    /// The folder of its sources, with `/` at its end.
    pub src: &'a str,
    /// Bottom up.
    pub layers: &'a [Layer],
    /// Traits that a lower layer declares and calls so that higher layers, or
    /// other crates, can implement them: the one way up. Each needs a reason.
    pub open_traits: &'a [&'a str],
    /// Names of methods of `core`, or of another crate, that also a higher layer's own
    /// types have.
    pub core_names: &'a [&'a str],
    /// Files that only builds for tests have, and that call `std`: `core_names`
    /// would have to be long for them.
    pub facades: &'a [&'a str],
}

/// The core's.
pub const CORE: Rules<'static> = Rules {
    src: "crates/softfault/src/",
    layers: LAYERS,
    // `Machine` and `Format` are what ports implement; `Harvest` is told what a
    // removal finds, page by page, by the removal; `FrameRefusal` is an operation's error as
    // reclaim sees it; `Words` has no methods; `KeepsTables` is a token, and the writer
    // lock of a space is one.
    open_traits: &["Machine", "Format", "Harvest", "FrameRefusal", "Words", "KeepsTables"],
    core_names: &["for_each", "is_none", "take"],
    facades: &["sync/modelled", "sync/recording", "sync/shuffled"],
};

/// The reference kernel's: `port` is what a porter of Softfault reads, and names
/// nothing of the personality.
pub const KERNEL: Rules<'static> = Rules {
    src: "crates/kernel/src/",
    layers: &[Layer { name: "port", members: &["port"] }, Layer { name: "linux", members: &["linux", "main"] }],
    // Code that runs on a thread: the port calls it from the entries of the kernel.
    open_traits: &["Program"],
    core_names: &["add", "get", "len", "nr_pages", "push", "remove", "replace", "set", "take", "write"],
    facades: &[],
};

const LAYERS: &[Layer] = &[
    // Words, and the values that every layer speaks in.
    Layer { name: "words", members: &["sync", "addr", "built", "hash", "errno", "linux", "setters"] },
    Layer { name: "values", members: &["policy", "table/format", "space/vma", "tunables", "machine", "notify/notice"] },
    // Typed views of frames, what a CPU has and counts, locks in words, sections.
    Layer {
        name: "mem",
        members: &[
            "mem",
            "lock",
            "section",
            "pace",
            "cpu",
            "base",
            "bytes",
            "account",
            "program",
            "clear",
            "frame/frame_cache",
            "compact/words",
            "swap/area",
        ],
    },
    Layer { name: "frame", members: &["frame"] },
    Layer { name: "swap", members: &["swap"] },
    Layer { name: "table", members: &["table"] },
    Layer { name: "notify", members: &["notify"] },
    // Lists through descriptors and spaces: pages of objects, families.
    Layer { name: "links", members: &["links", "source", "rmap/family"] },
    Layer { name: "space", members: &["space"] },
    Layer { name: "rmap", members: &["rmap"] },
    Layer { name: "fault", members: &["fault"] },
    Layer {
        name: "operations",
        members: &[
            "space/ops",
            "space/access",
            "space/walker",
            "source/handle",
            "source/hole",
            "source/create",
            "source/explicit",
            "source/prealloc",
            "source/bring",
            "source/io_bytes",
            "source/write_error",
            "pin",
            "notify/age",
            "notify/lookup",
        ],
    },
    Layer { name: "pressure", members: &["compact", "khugepaged", "shrink"] },
    // Nothing names it.
    Layer { name: "face", members: &["lib", "vm", "check", "source/check", "words", "hooks"] },
];
