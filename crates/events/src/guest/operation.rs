/// Words of the operations that a guest marks for who counts functions, in the order of the marks' numbers
/// (`stopgap_guest::mark::Operation`, which a test holds to this).
pub const OPERATIONS: [&str; 12] = [
    "map",
    "first touch",
    "unmap",
    "protect",
    "round trip",
    "fork",
    "wait",
    "create",
    "destroy",
    "dma map",
    "dma unmap",
    "nothing",
];
