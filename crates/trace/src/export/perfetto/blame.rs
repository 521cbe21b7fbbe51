//! Waits that lost time: an arrow from who ended one to the thread that runs again, and who caused how much of it.
//!
//! ```text
//! server 12 / wake-ups      | woke client
//!                             \\
//! client 11 / wake-ups          | runs again, woken by server
//! blame / writer 13         [client 11: disk vda, behind requests of writer]
//! ```
//!
//! The waits of one thread do not overlap, so each pair of who caused and who waited has a track; tracks of one name are drawn as
//! one.

use std::io;

use super::messages::{Data, TrackDescriptor, TrackEvent, Type};
use super::{Described, Perfetto};
use crate::export::timeline::Track;
use crate::export::{Lost, LostPart, Who};
use stopgap_events::units::Nanos;

const CATEGORY: &str = "blame";

impl Perfetto<'_> {
    pub(super) fn blames(&mut self, lost: &Lost) -> io::Result<()> {
        if let Some(waker) = &lost.waker {
            self.arrows += 1;
            let arrow = vec![self.arrows];
            let woke = TrackEvent {
                name: Some(format!("woke {}", lost.thread.name)),
                flow_ids: arrow.clone(),
                ..self.point(waker)?
            };
            self.packet(Some(lost.woken), Data::TrackEvent(woke))?;
            let runs = TrackEvent {
                name: Some(format!("runs again, woken by {}", waker.name)),
                terminating_flow_ids: arrow,
                ..self.point(&lost.thread)?
            };
            self.packet(Some(lost.ran), Data::TrackEvent(runs))?;
        }
        lost.parts
            .iter()
            .try_for_each(|part| self.part(&lost.thread, part))
    }

    /// Returns a point on the track of a thread's wake-ups.
    fn point(&mut self, who: &Who) -> io::Result<TrackEvent> {
        Ok(TrackEvent {
            track_uuid: Some(self.wake_ups(who)?),
            r#type: Some(Type::Instant.into()),
            categories: vec![CATEGORY.to_owned()],
            ..TrackEvent::default()
        })
    }

    fn part(&mut self, waits: &Who, part: &LostPart) -> io::Result<()> {
        let track_uuid = Some(self.blame_of(waits, part)?);
        let begin = TrackEvent {
            track_uuid,
            r#type: Some(Type::SliceBegin.into()),
            name: Some(format!("{} {}: {}", waits.name, waits.tid, part.text)),
            categories: vec![CATEGORY.to_owned()],
            ..TrackEvent::default()
        };
        self.packet(Some(part.begin), Data::TrackEvent(begin))?;
        let end = TrackEvent {
            track_uuid,
            r#type: Some(Type::SliceEnd.into()),
            ..TrackEvent::default()
        };
        let until = Nanos(part.begin.0.saturating_add(part.ns));
        self.packet(Some(until), Data::TrackEvent(end))
    }

    fn wake_ups(&mut self, who: &Who) -> io::Result<u64> {
        let (pid, tid) = (who.pid, who.tid);
        let parent = match pid {
            Some(_) => Some(self.track(&Track::Thread { pid, tid })?),
            None => None,
        };
        let name = match pid {
            Some(_) => "wake-ups".to_owned(),
            None => format!("{} {tid} wake-ups", who.name),
        };
        self.described(Described::WakeUps(tid), name, parent)
    }

    fn blame_of(&mut self, waits: &Who, part: &LostPart) -> io::Result<u64> {
        let above = self.described(Described::Blame, CATEGORY.to_owned(), None)?;
        let name = match &part.by {
            Some(who) => format!("{} {}", who.name, who.tid),
            None => part.text.clone(),
        };
        let of = match part.by {
            Some(_) => String::new(),
            None => part.text.clone(),
        };
        let track = Described::BlameOf(part.by.clone(), of, waits.tid);
        self.described(track, name, Some(above))
    }

    fn described(
        &mut self,
        track: Described,
        name: String,
        parent_uuid: Option<u64>,
    ) -> io::Result<u64> {
        if let Some(&uuid) = self.tracks.get(&track) {
            return Ok(uuid);
        }
        let uuid = self.next();
        self.tracks.insert(track, uuid);
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid,
            ..TrackDescriptor::default()
        })?;
        Ok(uuid)
    }
}
