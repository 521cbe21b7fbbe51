//! Kinds whose own columns make a type: [`Wait`].

use super::cell::{Cell, Get, Put, Wrong, word_cells};
use super::column::Column;
use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, Stack, State, Task, Wait, Waker, Within};

/// A type that has a kind's own columns.
pub(super) trait Row: Sized {
    /// The columns that it uses.
    const COLUMNS: &'static [Column];

    fn put_cells(&self, to: &mut impl Put);

    /// Reads it; the columns of every event may be read, too.
    fn from_cells(from: &impl Get) -> Result<Self, Wrong>;
}

/// Says in which columns the fields of a type stand. `put` and `read` add what is not that simple, in the columns of
/// `own`.
macro_rules! row {
    (
        $type:ident { $($field:ident = $($column:ident)+;)* }
        own { $($own:ident)* }
        put |$row:ident, $to:ident| $put:expr;
        read |$made:ident, $from:ident| $read:expr;
        $(rest $rest:expr;)?
    ) => {
        impl Row for $type {
            const COLUMNS: &'static [Column] =
                &[$(Column::$own,)* $($(Column::$column),+),*];

            fn put_cells(&self, $to: &mut impl Put) {
                $( self.$field.put_cells(&[$(Column::$column),+], $to); )*
                let $row = self;
                $put
            }

            fn from_cells($from: &impl Get) -> Result<$type, Wrong> {
                let $made = $type {
                    $( $field: Cell::from_cells(&[$(Column::$column),+], $from)?, )*
                    $(..$rest)?
                };
                $read
            }
        }
    };
}

word_cells!(State Within Context);

row! {
    Wait {
        left = LeftNs;
        woken = WokenNs;
        left_cpu = LeftCpu;
        state = State;
        preempted = Preempted;
        throttled = Throttled;
        for_io = ForIo;
        priority = Priority;
        within = Within;
        call = Syscall SyscallName Argument0 Argument1 Argument2;
        instruction_pointer = InstructionPointer;
        stack_pointer = StackPointer;
        stack = Stack StackOfLikeWait;
        user_stack = UserStack UserStackOfLikeWait;
        next = NextTid NextComm;
        previous = PreviousTid PreviousComm;
        waker = WakerTid WakerComm WakerContext
            WakerSyscall WakerSyscallName WakerArgument0 WakerArgument1 WakerArgument2;
    }
    own { BeganBefore Open }
    put |wait, to| {
        wait.began_before.put_cells(&[Column::BeganBefore], to);
        wait.ran.is_none().put_cells(&[Column::Open], to);
    };
    read |wait, from| {
        let time = Cell::from_cells(&[Column::TimeNs], from)?;
        let (left, woken) = ((Column::LeftNs, Some(wait.left)), (Column::WokenNs, wait.woken));
        in_order(&[left, woken, (Column::TimeNs, Some(time))])?;
        Ok(Wait {
            began_before: is_set(Column::BeganBefore, from)?,
            // The row's time is when it ran again.
            ran: (!is_set(Column::Open, from)?).then_some(time),
            ..wait
        })
    };
    rest Wait::default();
}

/// Whether a column is true; null is false.
fn is_set(column: Column, from: &impl Get) -> Result<bool, Wrong> {
    let set: Option<bool> = Cell::from_cells(&[column], from)?;
    Ok(set == Some(true))
}

/// Refuses moments of which a later one comes first.
fn in_order(moments: &[(Column, Option<Nanos>)]) -> Result<(), Wrong> {
    let mut last: Option<(Column, Nanos)> = None;
    for (column, time) in moments {
        let Some(time) = *time else { continue };
        if let Some((before, early)) = last.filter(|(_, early)| *early > time) {
            let (column, before) = (column.name(), before.name());
            return Err(Wrong(format!(
                "{column} {} is before {before} {}",
                time.0, early.0
            )));
        }
        last = Some((*column, time));
    }
    Ok(())
}

/// Reads something that is there where its first column is not null; else all of `columns` must be null.
fn there<T>(
    columns: &[Column],
    from: &impl Get,
    read: impl FnOnce() -> Result<T, Wrong>,
) -> Result<Option<T>, Wrong> {
    if from.get(columns[0]).is_some() {
        return read().map(Some);
    }
    match columns.iter().find(|&&column| from.get(column).is_some()) {
        None => Ok(None),
        Some(other) => Err(Wrong(format!(
            "column {} is null, but column {} is not",
            columns[0].name(),
            other.name()
        ))),
    }
}

impl Cell for Option<Task> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(task) = self else { return };
        task.tid.put_cells(&columns[..1], to);
        task.comm.put_cells(&columns[1..], to);
    }
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Task>, Wrong> {
        there(columns, from, || {
            Ok(Task {
                tid: Cell::from_cells(&columns[..1], from)?,
                comm: Cell::from_cells(&columns[1..], from)?,
            })
        })
    }
}

impl Cell for Option<Call> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(call) = self else { return };
        call.number.put_cells(&columns[..1], to);
        call.name.put_cells(&columns[1..], to);
        call.arguments.put_cells(&columns[2..], to);
    }
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Call>, Wrong> {
        there(columns, from, || {
            Ok(Call {
                number: Cell::from_cells(&columns[..1], from)?,
                name: Cell::from_cells(&columns[1..], from)?,
                arguments: Cell::from_cells(&columns[2..], from)?,
            })
        })
    }
}

impl Cell for Option<Waker> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(waker) = self else { return };
        waker.task.tid.put_cells(&columns[..1], to);
        waker.task.comm.put_cells(&columns[1..], to);
        waker.context.put_cells(&columns[2..], to);
        waker.call.put_cells(&columns[3..], to);
    }
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Waker>, Wrong> {
        there(columns, from, || {
            Ok(Waker {
                task: Task {
                    tid: Cell::from_cells(&columns[..1], from)?,
                    comm: Cell::from_cells(&columns[1..], from)?,
                },
                context: Cell::from_cells(&columns[2..], from)?,
                call: Cell::from_cells(&columns[3..], from)?,
            })
        })
    }
}

impl Cell for Option<Stack> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(stack) = self else { return };
        stack.frames.put_cells(&columns[..1], to);
        stack.of_a_like_wait.put_cells(&columns[1..], to);
    }
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<Stack>, Wrong> {
        there(columns, from, || {
            Ok(Stack {
                frames: Cell::from_cells(&columns[..1], from)?,
                of_a_like_wait: is_set(columns[1], from)?,
            })
        })
    }
}

#[cfg(test)]
mod tests;
