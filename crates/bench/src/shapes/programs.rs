//! Programs that place and free ranges: what `stopgap-bench shapes` carries out beside the workloads of `replay placement`.
//!
//! A program writes its steps onto a [`Tape`], from random numbers that its seed fixes. All arithmetic is of integers, so that a
//! seed gives the same steps on every machine.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use stopgap_events::random::Random;
use stopgap_events::units::Bytes;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4_096;
/// Pages of 2 MiB, of a GiB.
const LARGE: u64 = 512;
const GIB: u64 = 1 << 18;

/// A step in 12 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    id: u32,
    /// 0: unmaps.
    pages: u32,
    /// The power of two of pages that the start is a multiple of.
    aligned: u8,
}

/// The steps of a program, and what it holds.
#[derive(Debug)]
pub(crate) struct Tape {
    random: Random,
    steps: Vec<Step>,
    /// Where the part that is measured begins.
    steady: usize,
    operations: usize,
    /// Pages by name; 0 of a name that is free.
    pages: Vec<u32>,
    vacant: Vec<u32>,
    live: u64,
    ranges: u64,
    /// Most pages that were live, and most ranges.
    peak: u64,
    most: u64,
}

impl Tape {
    /// Returns the steps of `program`: `operations` after its layout.
    pub(crate) fn of(program: fn(&mut Tape), operations: u64, seed: u64) -> Tape {
        let mut tape = Tape {
            random: Random::new(seed),
            steps: Vec::new(),
            steady: 0,
            operations: usize::try_from(operations).unwrap_or(usize::MAX),
            pages: Vec::new(),
            vacant: Vec::new(),
            live: 0,
            ranges: 0,
            peak: 0,
            most: 0,
        };
        program(&mut tape);
        let end = tape.steady.saturating_add(tape.operations);
        tape.steps.truncate(end);
        tape
    }

    /// The most bytes that are ever live.
    pub(crate) fn peak(&self) -> u64 {
        self.peak * PAGE
    }

    /// The most ranges that are ever live.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// The operations after this one are measured.
    fn begin(&mut self) {
        self.steady = self.steps.len();
    }

    /// Whether there are as many steps as were asked for.
    fn full(&self) -> bool {
        self.steps.len() - self.steady >= self.operations
    }

    fn map(&mut self, pages: u64) -> u32 {
        self.map_aligned(pages, 0)
    }

    fn map_aligned(&mut self, pages: u64, aligned: u32) -> u32 {
        // Sizes are drawn from 1 page to some GiB.
        let pages = u32::try_from(pages.max(1)).unwrap_or(u32::MAX);
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(0);
            (self.pages.len() - 1) as u32
        });
        self.pages[id as usize] = pages;
        self.live += u64::from(pages);
        self.ranges += 1;
        self.peak = self.peak.max(self.live);
        self.most = self.most.max(self.ranges);
        self.steps.push(Step {
            id,
            pages,
            aligned: aligned as u8,
        });
        id
    }

    fn unmap(&mut self, id: u32) {
        self.live -= self.size(id);
        self.ranges -= 1;
        self.pages[id as usize] = 0;
        self.vacant.push(id);
        self.steps.push(Step {
            id,
            pages: 0,
            aligned: 0,
        });
    }

    fn size(&self, id: u32) -> u64 {
        u64::from(self.pages[id as usize])
    }

    /// From `low` to `high`, both included, all as likely.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.random.below(high - low + 1)
    }

    /// From `low` to `high`, powers of two: each octave as likely, and within it each number. High itself is not drawn.
    fn octaves(&mut self, low: u64, high: u64) -> u64 {
        let octave = low << self.random.below(u64::from((high / low).ilog2()).max(1));
        octave + self.random.below(octave)
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    /// Unmaps one of `ids`, at random.
    fn unmap_any(&mut self, ids: &mut Vec<u32>) {
        if !ids.is_empty() {
            let at = self.random.index(ids.len());
            self.unmap(ids.swap_remove(at));
        }
    }

    /// Unmaps all of `ids`, in their order.
    fn unmap_all(&mut self, ids: impl IntoIterator<Item = u32>) {
        for id in ids {
            self.unmap(id);
        }
    }
}

/// The events of a tape.
pub(super) fn events(tape: Rc<Tape>) -> impl Iterator<Item = MemoryEvent> {
    let steps = (0..tape.steps.len()).flat_map(move |at| {
        let begins = (at == tape.steady).then_some(MemoryEvent::Begin(Phase::Steady));
        begins.into_iter().chain([tape.steps[at].event()])
    });
    std::iter::once(MemoryEvent::Begin(Phase::Layout)).chain(steps)
}

impl Step {
    fn event(self) -> MemoryEvent {
        let id = MapId(self.id);
        if self.pages == 0 {
            return MemoryEvent::Unmap { id };
        }
        MemoryEvent::Map {
            id,
            length: Bytes(u64::from(self.pages) * PAGE),
            protection: Protection::Write,
            merge: Merge::Never,
            placing: Placing {
                alignment: Bytes(PAGE << self.aligned),
                ..Placing::ANYWHERE
            },
        }
    }
}

/// Ranges of 1 to 512 pages on a stack whose depth wanders; first it climbs to a quarter of all operations.
pub(super) fn lifo(t: &mut Tape) {
    let deepest = (t.operations / 4).max(2);
    let mut target = deepest;
    let mut stack = Vec::new();
    while !t.full() {
        while stack.len() < target {
            let pages = t.between(1, LARGE);
            stack.push(t.map(pages));
        }
        for _ in 0..2 {
            target = t.octaves(1, deepest as u64) as usize;
            let above = stack.split_off(target.min(stack.len()));
            t.unmap_all(above.into_iter().rev());
        }
    }
}

/// A queue of `count` ranges of 1 to 512 pages: the oldest goes first.
pub(super) fn fifo(t: &mut Tape) {
    let mut queue = VecDeque::new();
    while !t.full() {
        if queue.len() == 10_000 {
            queue.pop_front().into_iter().for_each(|id| t.unmap(id));
        }
        let pages = t.between(1, LARGE);
        queue.push_back(t.map(pages));
        if queue.len() == 10_000 && t.steady == 0 {
            t.begin();
        }
    }
}

/// Small sizes and short lives are the most frequent, both by Zipf's law: 1 to 512 pages, unmapped after 1 to 131,072 maps.
pub(super) fn zipf(t: &mut Tape) {
    const LONGEST: u64 = 1 << 17;
    let laid_out = LONGEST.min(t.operations as u64);
    let mut ends = BinaryHeap::new();
    for now in 0.. {
        if now == laid_out {
            t.begin();
        }
        if now > laid_out && t.full() {
            break;
        }
        let pages = t.octaves(1, LARGE);
        let end = now + t.octaves(1, LONGEST);
        ends.push((Reverse(end), t.map(pages)));
        while let Some(&(Reverse(end), id)) = ends.peek()
            && end <= now
        {
            ends.pop();
            t.unmap(id);
        }
    }
}

/// Fills to the brim with 1 to 64 pages, frees four fifths in random order, and so on, eight times.
pub(super) fn sawtooth(t: &mut Tape) {
    let brim = (t.operations as u64 / 14 * 32).max(64); // pages: a climb and a fall are 1.6 times its ranges
    let mut ids = Vec::new();
    while !t.full() {
        while t.live < brim {
            let pages = t.between(1, 64);
            ids.push(t.map(pages));
        }
        while t.live > brim / 5 {
            t.unmap_any(&mut ids);
        }
    }
}

/// Ranges of one octave, then of the next, from 1 to 1,023 pages, and again; after each a random half of all goes.
pub(super) fn octave_by_octave(t: &mut Tape) {
    let count = t.operations / 40 + 1;
    let mut ids = Vec::new();
    for octave in (0..10).cycle() {
        if t.full() {
            break;
        }
        for _ in 0..count {
            let pages = t.octaves(1 << octave, 2 << octave);
            ids.push(t.map(pages));
        }
        for _ in 0..ids.len() / 2 {
            t.unmap_any(&mut ids);
        }
    }
}

/// `count` ranges whose pages `size` draws; one after the other is replaced at random. What is live never exceeds what was laid
/// out, and comes within 0.25 % of it wherever a draw in 32 allows that.
fn replaced(t: &mut Tape, count: usize, size: impl Fn(&mut Tape) -> u64) {
    let mut ids = Vec::new();
    for _ in 0..count {
        let pages = size(t);
        ids.push(t.map(pages));
    }
    t.begin();
    let most = t.live;
    let least = most - most / 400;
    while !t.full() {
        let at = t.random.index(ids.len());
        t.unmap(ids[at]);
        let mut pages = 1;
        for _ in 0..32 {
            let drawn = size(t);
            if t.live + drawn <= most {
                pages = drawn.max(pages);
                if t.live + drawn >= least {
                    break;
                }
            }
        }
        ids[at] = t.map(pages);
    }
}

/// 20,000 of 1 to 512 pages.
pub(super) fn wide(t: &mut Tape) {
    replaced(t, 20_000, |t| t.between(1, LARGE));
}

/// 20,000 of 128 to 191 pages.
pub(super) fn narrow(t: &mut Tape) {
    replaced(t, 20_000, |t| t.between(128, 191));
}

/// 20,000 of a page more than a power of two, 2 to 1,025 pages: just past the bounds of size classes.
pub(super) fn past_powers(t: &mut Tape) {
    replaced(t, 20_000, |t| (1 << t.between(0, 10)) + 1);
}

/// 2,000 of 4 KiB to 1 GiB, each octave as likely.
pub(super) fn to_a_gib(t: &mut Tape) {
    replaced(t, 2_000, |t| t.octaves(1, GIB));
}

/// 50,000 of one page.
pub(super) fn pages(t: &mut Tape) {
    replaced(t, 50_000, |_| 1);
}

/// 50,000 of 1 to 5 pages: an X server's glyphs and pixmaps.
pub(super) fn tiny(t: &mut Tape) {
    replaced(t, 50_000, |t| t.between(1, 5));
}

/// 10,000 of a power of two of pages to 2 MiB, each aligned to its own size: page tables of devices, huge pages.
pub(super) fn natural(t: &mut Tape) {
    aligned(t, |t| {
        let log = t.between(0, 9);
        (1 << log, log)
    });
}

/// 10,000 of 1 to 512 pages, aligned to 4 KiB to 4 MiB.
pub(super) fn odd_aligned(t: &mut Tape) {
    aligned(t, |t| (t.between(1, LARGE), t.between(0, 10)));
}

/// 10,000 ranges, of pages and power of two that `size` draws; one after the other is replaced at random.
fn aligned(t: &mut Tape, size: impl Fn(&mut Tape) -> (u64, u64)) {
    let mut ids = Vec::new();
    while !t.full() {
        if ids.len() == 10_000 {
            t.unmap_any(&mut ids);
        }
        let (pages, log) = size(t);
        ids.push(t.map_aligned(pages, log as u32));
        if ids.len() == 10_000 && t.steady == 0 {
            t.begin();
        }
    }
}

/// Every second range of 8 to 16 pages goes; what then comes is too long for those holes by a page, or shorter.
pub(super) fn comb(t: &mut Tape) {
    let count = (t.operations / 40).max(2);
    while !t.full() {
        let pages = t.between(8, 16);
        let teeth: Vec<u32> = (0..count).map(|_| t.map(pages)).collect();
        let second = |rest| teeth.iter().copied().skip(rest).step_by(2);
        t.unmap_all(second(0));
        let longer: Vec<u32> = (0..count / 2).map(|_| t.map(pages + 1)).collect();
        let shorter: Vec<u32> = (0..count / 2).map(|_| t.map(pages / 2)).collect();
        t.unmap_all(longer);
        t.unmap_all(second(1));
        t.unmap_all(shorter);
    }
}

/// A burst of 1 to 16,384 ranges of 1 to 255 pages beside 5,000 that stay, then all of the burst goes: oldest first, newest first
/// or at random.
pub(super) fn bursts(t: &mut Tape) {
    for _ in 0..5_000 {
        let pages = t.octaves(1, 256);
        t.map(pages);
    }
    t.begin();
    while !t.full() {
        let count = t.octaves(1, 1 << 14);
        let mut burst = Vec::new();
        for _ in 0..count {
            let pages = t.octaves(1, 256);
            burst.push(t.map(pages));
        }
        match t.random.below(3) {
            0 => {}
            1 => burst.reverse(),
            _ => t.random.shuffle(&mut burst),
        }
        t.unmap_all(burst);
    }
}

/// A range of one page that stays is placed after each of 256 pages that goes: what lives long lies between what does not. Of 4,000
/// that stay the oldest goes.
pub(super) fn pins(t: &mut Tape) {
    let mut pins = VecDeque::new();
    while !t.full() {
        let mut large = Vec::new();
        for _ in 0..64 {
            large.push(t.map(256));
            pins.push_back(t.map(1));
        }
        t.unmap_all(large);
        while pins.len() > 4_000 {
            pins.pop_front().into_iter().for_each(|id| t.unmap(id));
        }
    }
}

/// A thousand vectors that grow by half or double, from a page to 64 MiB: the new range is mapped before the old one goes.
pub(super) fn growing(t: &mut Tape) {
    let mut ids: Vec<u32> = (0..1_000).map(|_| t.map(1)).collect();
    t.begin();
    while !t.full() {
        let at = t.random.index(ids.len());
        let pages = t.size(ids[at]);
        let larger = if t.one_in(2) {
            pages + pages.div_ceil(2)
        } else {
            pages * 2
        };
        let (old, pages) = (ids[at], if larger > 1 << 14 { 1 } else { larger });
        ids[at] = t.map(pages);
        t.unmap(old);
    }
}

/// A browser. 30 tabs: each has a heap of 256 KiB chunks aligned to their size, images of 4 KiB to 4 MiB and tiles of 1 MiB. A tab
/// changes some of them for a while, then it is closed and another opened.
pub(super) fn browser(t: &mut Tape) {
    let piece = |t: &mut Tape| match t.random.below(8) {
        0..4 => t.map_aligned(64, 6),
        4..7 => {
            let pages = t.octaves(1, 1_024);
            t.map(pages)
        }
        _ => t.map(256),
    };
    let mut tabs: Vec<Vec<u32>> = vec![Vec::new(); 30];
    while !t.full() {
        let at = t.random.index(tabs.len());
        let mut tab = std::mem::take(&mut tabs[at]);
        if tab.is_empty() || t.one_in(6) {
            t.unmap_all(tab.drain(..));
            for _ in 0..t.octaves(64, 2_048) {
                tab.push(piece(t));
            }
        }
        for _ in 0..t.between(10, 400) {
            t.unmap_any(&mut tab);
            tab.push(piece(t));
        }
        tabs[at] = tab;
    }
}

/// Texture streaming of a game engine. A texture's levels take 64 KiB to 16 MiB, each four times the one below it, aligned to 64 KiB. As
/// the camera turns, new textures come at their smallest level, and near ones get a larger one, which replaces the smaller; what was
/// looked at longest ago goes, so that 1 GiB is resident at most. Now and then all textures go, because another map begins.
pub(super) fn textures(t: &mut Tape) {
    const SMALLEST: u64 = 16;
    while !t.full() {
        // Names and levels; the one looked at last is at the end.
        let mut textures: VecDeque<(u32, u64)> = VecDeque::new();
        for _ in 0..t.between(20_000, 60_000) {
            let back = t.octaves(1, 4_096) as usize;
            let near = textures.len().checked_sub(back).filter(|_| !t.one_in(8));
            let old = near.and_then(|at| textures.remove(at));
            let level = old.map_or(0, |(_, level)| t.random.below(5).max(level));
            let pages = SMALLEST << (2 * level);
            if let Some((_, same)) = old
                && same == level
            {
                textures.extend(old);
                continue;
            }
            while t.live + pages > GIB
                && let Some((oldest, _)) = textures.pop_front()
            {
                t.unmap(oldest);
            }
            textures.push_back((t.map_aligned(pages, 4), level));
            t.unmap_all(old.map(|(old, _)| old));
        }
        t.unmap_all(textures.into_iter().map(|(id, _)| id));
    }
}

/// A database. Its pool of buffers holds extents of 8 KiB to 1 MiB, the least recently used of which makes room; queries sort in
/// 1 to 64 MiB, and hash tables double until the query ends.
pub(super) fn database(t: &mut Tape) {
    const POOL: u64 = GIB / 2;
    let mut pool = VecDeque::new();
    let mut pooled = 0;
    let mut queries: Vec<Vec<u32>> = Vec::new();
    while !t.full() {
        let pages = match t.random.below(4) {
            0..3 => 2,
            _ => 2 << t.random.below(8),
        };
        while pooled + pages > POOL {
            let Some(id) = pool.pop_front() else { break };
            pooled -= t.size(id);
            // A second chance for half of them.
            if t.one_in(2) {
                t.unmap(id);
            } else {
                pooled += t.size(id);
                pool.push_back(id);
            }
        }
        pool.push_back(t.map(pages));
        pooled += pages;
        if pool.len() > 40_000 && t.steady == 0 {
            t.begin();
        }
        if t.one_in(50) {
            if queries.len() > 8 {
                let at = t.random.index(queries.len());
                let query = queries.swap_remove(at);
                t.unmap_all(query);
            }
            let mut query = Vec::new();
            if t.one_in(3) {
                let pages = t.octaves(256, 1 << 14);
                query.push(t.map(pages));
            } else {
                for log in 0..t.between(2, 12) {
                    query.push(t.map(2 << log));
                    if query.len() > 1 {
                        let old = query.remove(0);
                        t.unmap(old);
                    }
                }
            }
            queries.push(query);
        }
    }
}

/// A video pipeline: four streams of 480p to 4K. A frame comes as 1 to 127 pages of bits and is decoded into one of NV12, which stays
/// while 4 to 16 later ones refer to it; each tenth is scaled for a thumbnail. Streams end, and others of another size begin.
pub(super) fn video(t: &mut Tape) {
    // 720x480, 1280x720, 1920x1080, 2560x1440 and 3840x2160, at one and a half bytes a pixel.
    const FRAMES: [u64; 5] = [127, 338, 760, 1_350, 3_038];
    struct Stream {
        frame: u64,
        depth: u64,
        left: u64,
        held: VecDeque<u32>,
        thumbnails: VecDeque<u32>,
    }
    let start = |t: &mut Tape| Stream {
        frame: FRAMES[t.random.index(FRAMES.len())],
        depth: t.between(4, 16),
        left: t.between(100, 3_000),
        held: VecDeque::new(),
        thumbnails: VecDeque::new(),
    };
    let mut streams: Vec<Stream> = (0..4).map(|_| start(t)).collect();
    while !t.full() {
        for stream in &mut streams {
            let pages = t.octaves(1, 128);
            let bits = t.map(pages);
            stream.held.push_back(t.map(stream.frame));
            t.unmap(bits);
            if t.one_in(10) {
                stream.thumbnails.push_back(t.map(stream.frame / 16));
            }
            while stream.held.len() as u64 > stream.depth {
                stream
                    .held
                    .pop_front()
                    .into_iter()
                    .for_each(|id| t.unmap(id));
            }
            while stream.thumbnails.len() > 200 {
                stream
                    .thumbnails
                    .pop_front()
                    .into_iter()
                    .for_each(|id| t.unmap(id));
            }
            stream.left -= 1;
            if stream.left == 0 {
                let ended = std::mem::replace(stream, start(t));
                t.unmap_all(ended.held.into_iter().chain(ended.thumbnails));
            }
        }
    }
}
