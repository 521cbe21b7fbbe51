//! Tests of the command as its users run it, and of what the repository says of itself.

mod common;

mod bad_input;
mod bounds;
mod check;
mod compare;
mod compare_many;
mod compare_run;
mod compatibility;
mod documents;
mod export;
mod kernels;
mod kernels_real;
mod killed;
mod left_behind;
mod ministat;
mod now;
mod pipes;
mod profile;
mod reclaim;
mod reclaim_independent;
mod record;
mod record_counts;
mod record_refused;
mod record_sources;
mod record_targets;
mod record_user;
mod replay;
mod replay_chunks;
mod replay_reclaim;
mod report;
mod run;
mod shared_folder;
mod snapshot;
mod wakeup;
mod watch;
