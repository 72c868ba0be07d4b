//! Colours, patterns and the legend. Colours that people with any colour vision can tell apart, and a pattern each.

use crate::record::What;
use std::fmt::Write as _;

/// Styles for light and for dark, and the patterns. No variables: simple viewers do not know them.
pub(super) const DEFINITIONS: &str = r##"<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:#1f2328}
.title{font-size:19px;font-weight:600}
.panel{font-size:14px;font-weight:600}
.name,.goes-on{text-anchor:end}
.time{text-anchor:middle;font-size:11px}
.about,.time,.goes-on{fill:#59636e}
.paper{fill:#ffffff}
.lane{fill:#f3f5f7}
.tick{stroke:#d8dee4;fill:none}
.end{stroke:#1f2328;stroke-width:1.5;fill:none}
.ran{fill:#0072b2}
.waited{fill:url(#waited)}
.in{fill:url(#in)}
.out{fill:url(#out)}
.idle{fill:url(#idle)}
.f-in{fill:#009e73}
.f-out{fill:#d55e00}
.f-wait{fill:#b9c1ca}
.s-mark{stroke:#ffffff;stroke-width:1.4;fill:none}
.s-wait{stroke:#b9c1ca;stroke-width:1.2;fill:none}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.about,.time,.goes-on{fill:#9198a1}
.paper{fill:#0d1117}
.lane{fill:#161b22}
.tick{stroke:#2f363e}
.end{stroke:#e6edf3}
.ran{fill:#4aa8e0}
.f-in{fill:#2bc49a}
.f-out{fill:#f0883e}
.f-wait{fill:#5a6470}
.s-mark{stroke:#0d1117}
.s-wait{stroke:#5a6470}
}
</style>
<defs>
<pattern id="in" width="6" height="6" patternUnits="userSpaceOnUse"><path class="f-in" d="M0 0h6v6h-6z"/><path class="s-mark" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern>
<pattern id="out" width="6" height="6" patternUnits="userSpaceOnUse"><path class="f-out" d="M0 0h6v6h-6z"/><path class="s-mark" d="M-1 5l2 2M0 0l6 6M5-1l2 2"/></pattern>
<pattern id="waited" width="4" height="4" patternUnits="userSpaceOnUse"><path class="lane" d="M0 0h4v4h-4z"/><path class="s-wait" d="M0 2h4"/></pattern>
<pattern id="idle" width="8" height="8" patternUnits="userSpaceOnUse"><path class="lane" d="M0 0h8v8h-8z"/><circle class="f-wait" cx="4" cy="4" r="1"/></pattern>
</defs>
"##;

/// How a lane is filled with this.
pub(super) fn class(what: What) -> &'static str {
    match what {
        What::Ran => "ran",
        What::Waited => "waited",
        What::MovedOut => "out",
        What::MovedIn => "in",
        What::Idle => "idle",
    }
}

/// What means what.
pub(super) fn legend(out: &mut String, left: usize, top: usize) {
    let entries = [
        (What::Ran, "ran"),
        (What::MovedIn, "memory moves in"),
        (What::MovedOut, "memory moves out"),
        (What::Waited, "waited"),
        (What::Idle, "idle"),
    ];
    let mut x = left;
    for (what, word) in entries {
        let _ = writeln!(
            out,
            r#"<rect class="{}" x="{x}" y="{top}" width="26" height="14"/><text x="{}" y="{}">{word}</text>"#,
            class(what),
            x + 33,
            top + 11
        );
        x += 58 + word.len() * 7;
    }
    let _ = writeln!(
        out,
        r#"<path class="end" d="M{x} {top}v14"/><text x="{}" y="{}">ended</text>"#,
        x + 9,
        top + 11
    );
}
