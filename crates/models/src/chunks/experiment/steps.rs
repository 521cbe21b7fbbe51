//! Requests to the memory: buffers built and freed, in order.

/// One step. A buffer's name may be used again after its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Build a buffer of so many base pages.
    Build {
        /// Its name.
        id: u32,
        /// Base pages, at least 1.
        pages: u64,
    },
    /// Give it back; nothing where it could not be built.
    Release {
        /// Its name.
        id: u32,
    },
}

/// Buffers as a page of videos has them: `live` are held, and with each new one the oldest goes first. The
/// last ones stay.
pub fn videos(pages: u64, buffers: u32, live: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    for id in 0..buffers {
        if let Some(oldest) = id.checked_sub(live.max(1)) {
            steps.push(Step::Release { id: oldest });
        }
        steps.push(Step::Build { id, pages });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ```text
    /// build    0 1   2   3
    /// release      0   1
    /// ```
    #[test]
    fn the_oldest_goes_before_the_next_comes() {
        let build = |id| Step::Build { id, pages: 7 };
        let release = |id| Step::Release { id };
        let expected = [
            build(0),
            build(1),
            release(0),
            build(2),
            release(1),
            build(3),
        ];
        assert_eq!(videos(7, 4, 2), expected);
    }
}
