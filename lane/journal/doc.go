// SPDX-License-Identifier: Apache-2.0

// Package journal keeps on disk what niclane has changed and the values before, so that rollback
// can restore them after a failure, a kill or a crash.
//
// There is one file for each applied lanes file, network namespace and boot. The files are in a
// directory that only root can enter. A file begins with its head: a JSON document that says who
// applied which lanes file, where and when. The head includes lines with the objects that earlier
// plans of the same lanes file still own, and with the plan: the old and the new value of every
// object. niclane writes the head to a new file and renames it into place before the first step.
// When a step begins or ends, niclane appends a line of progress.
//
// # Why nothing is synced
//
// Everything that a plan writes is in kernel memory, and the page cache with the file is too.
// After a kill, both still exist: write(2) and rename(2) have returned, so the next reader sees
// their result. After a crash or a loss of power, both are lost: the file may be missing, empty
// or cut short, but the state that it describes is lost too. The file's name says that it belongs
// to an earlier boot, and the file system guarantees that rename(2) leaves a complete name. A
// reader can therefore ignore an unreadable head of an earlier boot. One fsync(2) takes half a
// millisecond on a quiet disk. If another program writes a lot, it takes tens of milliseconds:
// most of the time of changing one lane. The disadvantage is that niclane does not notice a
// failing disk before the first step. A journal that the kernel cannot write to the disk then
// exists only in memory, until the kernel reclaims that memory.
//
// niclane records the begin of a step before it writes the object. The record of the next step,
// or of reading the group back, says that the object was written. If niclane is killed between
// the two, the value of one object may be the old one, the new one, or something between. Its
// record is then Uncertain.
//
// When steps are undone, the removal of an object is recorded as soon as the kernel confirms it,
// not when the group is read back. If a later process finds an object for the same packets, it
// thus knows that another program has made it. Other values stay uncertain until they are read
// back: to write the original value twice does no harm.
//
// Damage does not prevent undoing. If progress cannot be read, every step counts as made.
// Rollback then reads the present value of each object and restores it. If a head is damaged,
// Salvage reads the lines that are complete.
//
// The package refuses to follow symbolic links, to use a directory that others can write, to read
// an unknown version, and to record two lanes files for one device.
package journal
