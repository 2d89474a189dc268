// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxSize is the largest size of a journal in bytes, enough for a plan of a hundred thousand
// steps.
const maxSize = 256 << 20

// openAt opens a file of the store. It does not follow a symbolic link.
func (s *Store) openAt(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(s.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.path(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), s.path(name))
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: s.path(name), Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// load reads one journal.
func (s *Store) load(name string) (*Journal, error) {
	f, err := s.openAt(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: s.path(name), Err: err}
	}
	if st.Size == 0 { // nothing was written, or a crash has lost it
		return nil, errors.Join(f.Close(), &fs.PathError{Op: "read", Path: s.path(name), Err: fs.ErrNotExist})
	}
	if j := s.memory.find(s, name, &st); j != nil {
		return j, f.Close()
	}
	b, err := readAll(f, st.Size)
	var j *Journal
	if err == nil {
		j, err = Decode(b)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w; niclane rollback --force undoes the part that can be "+
			"read", s.path(name),
			err)
	}
	j.store, j.name = s, name
	j.size = int64(lastLine(b))
	j.torn = j.size != int64(len(b))
	if int64(len(b)) != st.Size {
		return j, f.Close()
	}
	s.memory.put(f, &st, j)
	return j, nil
}

// read returns the content of a file. An empty file is no error.
func (s *Store) read(name string) ([]byte, error) {
	f, err := s.openAt(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, 0)
}

// readAll reads a file. size is its expected size in bytes.
func readAll(f io.Reader, size int64) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, min(size, maxSize)+bytes.MinRead))
	if _, err := b.ReadFrom(io.LimitReader(f, maxSize+1)); err != nil {
		return nil, err
	}
	if b.Len() > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	return b.Bytes(), nil
}

// append writes one line to the file, after the last complete line.
func (j *Journal) append(line []byte) error {
	if j.file == nil {
		f, err := j.store.openAt(j.name, unix.O_RDWR|unix.O_APPEND)
		if err != nil {
			return err
		}
		j.file = f
	}
	// If a kill or a full disk has left an incomplete line, remove it: the next line would continue
	// it.
	if j.torn {
		if err := j.file.Truncate(j.size); err != nil {
			return err
		}
	}
	// One write(2) for the line: if niclane is killed, the file has the line or the beginning of it.
	if _, err := j.file.Write(line); err != nil {
		j.torn = true
		return err
	}
	j.size, j.torn = j.size+int64(len(line)), false
	return nil
}

// lastLine returns the length of the complete lines of b: up to and including the last newline.
func lastLine(b []byte) int {
	for n := len(b); n > 0; n-- {
		if b[n-1] == '\n' {
			return n
		}
	}
	return 0
}

// temporarySuffix is the end of the file name of a journal that is being written.
const temporarySuffix = ".new"

// write writes the file under a temporary name and renames it. A reader finds the complete old
// file or the complete new one, even if niclane is killed meanwhile.
func (s *Store) write(name string, h Head) (*Journal, error) {
	b, err := encodeHead(&h)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	temporary := name + temporarySuffix
	if err := unix.Unlinkat(s.fd, temporary, 0); err != nil && err != unix.ENOENT {
		return nil, fmt.Errorf("journal: %w", &fs.PathError{Op: "remove", Path: s.path(temporary), Err: err})
	}
	f, err := s.openAt(temporary, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if _, err = f.Write(b); err == nil {
		err = reserve(f, len(b), progressRoom(&h))
	}
	if err == nil && h.Undoable && h.Generation > 1 {
		err = s.keep(name)
	}
	if err == nil {
		err = unix.Renameat(s.fd, temporary, s.fd, name)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", s.path(name),
			errors.Join(err, ignoreAbsent(unix.Unlinkat(s.fd, temporary, 0))))
	}
	return &Journal{head: h, store: s, name: name, file: f, size: int64(len(b))}, nil
}

// progressRoom returns how many bytes the progress lines for the plan of h and its undo take at
// most. Only very long keys can take more.
func progressRoom(h *Head) int { return 256 * (len(h.Before) + len(h.Plan.Steps) + 1) }

// reserve reserves room bytes on disk, after the first size bytes of the file. An undo can then
// be recorded even if the disk is full. On file systems without this feature, it does nothing.
func reserve(f *os.File, size, room int) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, int64(size), int64(room))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Close closes the file. If something is recorded later, the file is opened again.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	return f.Close()
}

// Remove closes the journal and removes its file, because niclane owns no objects of it any more.
// If the file has unreadable lines, Remove renames it instead.
func (j *Journal) Remove() error {
	if j.store == nil {
		return nil
	}
	if err := j.Close(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.lost > 0 {
		if err := ignoreAbsent(unix.Renameat(j.store.fd, j.name, j.store.fd, j.name+damagedSuffix)); err != nil {
			return fmt.Errorf("journal: %w", &fs.PathError{Op: "rename", Path: j.Path(), Err: err})
		}
		return nil
	}
	for _, name := range []string{j.name, j.name + replacedSuffix} {
		if err := ignoreAbsent(unix.Unlinkat(j.store.fd, name, 0)); err != nil {
			return fmt.Errorf("journal: %w", &fs.PathError{Op: "remove", Path: j.store.path(name), Err: err})
		}
	}
	return nil
}
