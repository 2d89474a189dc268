// SPDX-License-Identifier: Apache-2.0

// Package journal keeps on disk what niclane has changed and what was there
// before, so that rollback can restore it after a failure, a kill or a crash.
//
// There is one file per applied config and network namespace, under a
// directory that only root can enter. Its head is a JSON document, who applied
// which config where and when, followed by lines: what earlier plans of the same
// config still own, and the plan with the old and the new value of every object.
// The head is written to a new file, synced and renamed into place before the
// first step. Progress follows as lines, appended as steps begin and end.
//
// # Why progress is not synced
//
// Everything that a plan writes lives in kernel memory, and so does the page
// cache that holds the progress lines. A process that is killed loses neither:
// write(2) has returned, so the next reader sees the line. A crash of the
// machine or a loss of power loses both: the lines may be missing or cut short,
// but the state that they describe is gone too, which the boot ID in the head
// shows. So only the head has to be on disk before the first step, with one
// fsync however many steps the plan has.
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
// The package refuses to follow symbolic links, to use a directory that others
// can write, to read a version it does not know, and to record two configs for
// one device.
package journal
