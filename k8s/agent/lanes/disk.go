// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/niclane/niclane/internal/atomicfile"
	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// schema is the version of the two files' formats. A release that writes something that other
// releases would misread has another one. No release reads a file of another schema: everything in
// the files can be had again from the API server and kubelet.
const schema = 3

// A disk keeps a state in two files, because one part must survive a reboot and the other must not.
//
// The first file has the policy and the holds. They survive a reboot, because kubelet prepares a
// claim only once. The file is synced.
//
// The second file has the pods in lanes, which belong to one boot. It is in /run, changes with each
// pod and is not synced: it survives a kill of this process, and a crash of the machine ends the
// pods too. Its name contains the boot ID. So no file of an earlier boot is read, even if /run is
// on a disk.
//
// A kill between the two writes does no harm: the files need not agree on which claims are
// prepared and which pods are in lanes.
type disk struct {
	lasting, boot stateFile
}

// newDisk returns the disk for a boot ID. path is the path of the first file, runDir the directory
// of the second.
func newDisk(path, runDir, boot string) *disk {
	return &disk{
		lasting: stateFile{path: path},
		boot:    stateFile{path: filepath.Join(runDir, podsFile(boot))},
	}
}

func podsFile(boot string) string { return "pods." + boot + ".json" }

// A stateFile is one of the two files of a disk.
type stateFile struct {
	path string
	// text is the file's present content. write does not write the same content again.
	text []byte
}

// lastingJSON is the format of the first file, which survives a reboot.
type lastingJSON struct {
	Schema int `json:"schema"`
	// Policy and Generation identify the LanePolicy from which Spec comes.
	Policy     string                    `json:"policy,omitempty"`
	Generation int64                     `json:"generation,omitempty"`
	Spec       *v1alpha1.LanePolicySpec  `json:"spec,omitempty"`
	Holds      map[string]inventory.Hold `json:"holds,omitempty"`
}

// podsJSON is the format of the second file, with the pods in lanes.
type podsJSON struct {
	Schema      int                    `json:"schema"`
	Attachments map[string]*Attachment `json:"attachments"`
}

// load reads the files. If they do not exist, the state is empty. If one is damaged or of another
// schema, its part of the state is empty, and unread says why. load removes second files of other
// boots: kubelet creates all sandboxes again after a reboot.
func (d *disk) load() (s *state, unread []string, err error) {
	var lasting lastingJSON
	why, err := d.lasting.read(&lasting)
	if err != nil {
		return nil, nil, err
	}
	if why != "" {
		lasting, unread = lastingJSON{}, append(unread, why)
	}
	s = (&state{Policy: lasting.Policy, Generation: lasting.Generation, Spec: lasting.Spec,
		Holds: lasting.Holds}).clone()
	var pods podsJSON
	if why, err = d.boot.read(&pods); err != nil {
		return nil, nil, err
	}
	if why != "" {
		pods, unread = podsJSON{}, append(unread, why)
	}
	for _, a := range pods.Attachments {
		if a != nil {
			s.put(*a)
		}
	}
	return s, unread, d.tidy()
}

// read decodes the file into v. unread says why v is not the file's content. If the file does not
// exist, v stays as it is.
func (k *stateFile) read(v any) (unread string, err error) {
	b, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// The schema is read first: in another schema, other fields may have other types.
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return fmt.Sprintf("%s: damaged: %v", k.path, err), nil
	}
	if head.Schema != schema {
		return fmt.Sprintf("%s: schema %d of another release, this one has %d", k.path, head.Schema, schema), nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Sprintf("%s: damaged: %v", k.path, err), nil
	}
	k.text = b
	return "", nil
}

// tidy removes the second files (pods in lanes) of other boots.
func (d *disk) tidy() error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(d.boot.path), podsFile("*")))
	for _, f := range files {
		if f != d.boot.path {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}

// save writes the state to the files. It skips a file whose content is the same.
func (d *disk) save(s *state) error {
	pods := podsJSON{schema, make(map[string]*Attachment, len(s.Attachments))}
	for _, a := range s.Attachments {
		pods.Attachments[a.key()] = a
	}
	return errors.Join(
		d.lasting.write(lastingJSON{schema, s.Policy, s.Generation, s.Spec, s.Holds}), d.boot.write(pods))
}

// remove removes the files.
func (d *disk) remove() error {
	var errs []error
	for _, k := range []*stateFile{&d.lasting, &d.boot} {
		k.text = nil
		errs = append(errs, gone(k.path))
	}
	return errors.Join(errs...)
}

// write writes v to the file as JSON, unless the file already has the same content.
func (k *stateFile) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil || bytes.Equal(k.text, text) {
		return err
	}
	if err := atomicfile.Write(k.path, text, 0o600); err != nil {
		return err
	}
	k.text = text
	return nil
}
