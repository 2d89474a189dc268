// SPDX-License-Identifier: Apache-2.0

// Package journal keeps on disk what niclane has changed and the values before, so that
// rollback can restore them after a failure, a kill or a crash.
//
// There is one file per applied config, network namespace and boot, in a directory that
// only root can enter. Its head is a JSON document that says who applied which config,
// where and when. Lines follow: the objects that earlier plans of the same config still
// own, and the plan with the old and the new value of every object. niclane writes the head
// to a new file and renames it into place before the first step. Progress follows as lines,
// appended when a step begins and ends.
//
// # Why nothing is synced
//
// Everything that a plan writes is in kernel memory, and so is the page cache with the
// file. A killed process loses neither: write(2) and rename(2) have returned, so the next
// reader sees their result. A crash or a loss of power loses both: the file may be missing,
// empty or cut short, but the state that it describes is gone too. The file's name says
// that it belongs to an earlier boot; rename(2) and the file system's own journal keep the
// name whole. So a reader knows that it can ignore an unreadable head. One fsync(2) takes
// half a millisecond on a quiet disk, and tens of milliseconds beside a program that writes
// a lot: most of the time of changing one lane. The price is that niclane does not notice a
// failing disk before the first step. A journal that cannot be written out is then only in
// memory, until that memory is reclaimed.
//
// A step is recorded before it is written. The record of the next step, or of the read-back
// of its group, says that it was written. A kill between the two leaves one object whose
// value may be the old one, the new one, or something between; its record is then
// Uncertain.
//
// When steps are undone, the removal of an object is recorded as soon as the kernel confirms
// it, not when the group is read back. An object for the same packets that is there after a
// kill then belongs to another program. Other values stay uncertain until they are read back;
// writing the original again does no harm.
//
// Damage does not prevent undoing. If progress cannot be read, every step counts as made,
// and rollback tries each: it reads the present value. From a damaged head, Salvage takes
// the lines that are whole.
//
// The package refuses to follow symbolic links, to use a directory that others can write,
// to read an unknown version, and to record two configs for one device.
package journal
