// SPDX-License-Identifier: Apache-2.0

// Package journal keeps on disk what niclane has changed and what was there
// before, so that rollback can restore it after a failure, a kill or a crash.
//
// There is one file per applied config, network namespace and boot, under a
// directory that only root can enter. Its head is a JSON document, who applied
// which config where and when, followed by lines: what earlier plans of the same
// config still own, and the plan with the old and the new value of every object.
// The head is written to a new file and renamed into place before the first step.
// Progress follows as lines, appended as steps begin and end.
//
// # Why nothing is synced
//
// Everything that a plan writes lives in kernel memory, and so does the page
// cache that holds the file. A process that is killed loses neither: write(2) and
// rename(2) have returned, so the next reader sees what they did. A crash of the
// machine or a loss of power loses both: the file may be missing, empty or cut
// short, but the state that it describes is gone too. That it is of an earlier boot
// its name says, which rename(2) and the file system's own journal keep whole
// whatever becomes of the content; so a reader knows that nothing is to be done
// about a head that it cannot read. One fsync(2) takes half a millisecond on a
// quiet disk, and tens of them beside somebody who writes a lot: that would be
// most of what changing one lane takes, and nothing would be gained by it. What is
// given up is that a disk that fails is noticed before the first step: of a journal
// that cannot be written out only the copy in memory is left, until that is needed
// for something else.
//
// A step is recorded before it is written; that it was written, by the record
// of the next one, or of its reading back at the end of the steps that are read
// back together. A kill between the two leaves one object whose value may be
// the old one, the new one, or something between; its record says so
// (Uncertain).
//
// On the way back, what the kernel says to be removed is recorded as being back
// at once, and not when the group is read back: what is there for the same
// packets after a kill is somebody else's. Other values stay uncertain until they
// are read back; to write the original once more does no harm.
//
// Damage does not stand in the way of undoing. Where progress cannot be read, every
// step counts as made, and rollback tries each: it reads what is there. Of a head
// that is damaged, Salvage takes the lines that are whole.
//
// The package refuses to follow symbolic links, to use a directory that others
// can write, to read a version it does not know, and to record two configs for
// one device.
package journal
