//! The programs on the running kernel, and the object against its source.

mod file_locks;
mod histograms;
mod live;
mod object;
mod truths;
