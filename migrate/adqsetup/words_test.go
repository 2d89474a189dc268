// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/migrate/adqsetup"
)

// TestWords checks that the words after create mean the same as the lines of a file. Only the
// positions in comments may differ.
func TestWords(t *testing.T) {
	for _, c := range []struct{ name, words, file string }{
		{"one", "[myapp] queues 4 ports 11211", "[myapp]\nqueues=4\nports=11211"},
		{"no brackets", "myapp queues 4 ports 11211", "[myapp]\nqueues=4\nports=11211"},
		{"globals", "[globals] priority skbedit [myapp] queues 2 ports 11211",
			"[globals]\npriority=skbedit\n[myapp]\nqueues=2\nports=11211"},
		{
			"two", "[app1] mode shared queues 4 ports 6379-6382 [app2] queues 2 ports 11211 pollers 2 poller_timeout 50",
			"[app1]\nmode=shared\nqueues=4\nports=6379-6382\n[app2]\nqueues=2\nports=11211\npollers=2\npoller-timeout=50",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := []adqsetup.Option{{Key: "dev", Value: "eth4"}}
			words, err := adqsetup.Make(adqsetup.Input{Name: "create", Words: strings.Fields(c.words),
				Options: options})
			must.Do(t, err)
			file, err := adqsetup.Make(adqsetup.Input{Name: "file", Text: []byte(c.file), Options: options})
			must.Do(t, err)
			if diff := cmp.Diff(withoutComments(file.Lanes), withoutComments(words.Lanes)); diff != "" {
				t.Errorf("(-file +words):\n%s", diff)
			}
			for _, n := range words.Notes {
				if n.Line > len(strings.Fields(c.words)) {
					t.Errorf("%d words: %+v", len(strings.Fields(c.words)), n)
				}
			}
		})
	}
}

func withoutComments(text string) (out string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out += line
		}
	}
	return out
}

func TestWordsErrors(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"", "create:1: found nothing, want [NAME] KEY VALUE ...: [web] queues 4 ports 80"},
		{"[] queues 4", `create:1: found "[]", want [globals] or the name of an application in brackets`},
		{"[web] queues", "create:2: web.queues: has no value after it"},
		{"[web] queues [db] ports 80", `create:2: web.queues: has no value after it, but "[db]"`},
		{"[web] queues 4 queues 5 ports 80", "create:4: web.queues: given a second time, first in word 2"},
		{"[web] queues 4 ports 80 [web] queues 5 ports 90",
			"create:6: web: a second section of this name, the first in word 1"},
		{"[web] queues 4 ports 80 [db] queues 5 ports 80",
			"create:6: db: overlaps lanes.web (word 1): tcp to port 80 would belong to lanes web and db"},
		{"[web] qeues 4 ports 80", "create:2: web.qeues: unknown key, which adqsetup ignores, did you mean " +
			"queues?\ncreate:1: web: queues is missing, want an integer from 1"},
		{"[web] queues 4 ports 80 Web queues 5", "create:8: web.5: has no value after it"},
		{"[web] queues 4 ports 80\a", `create:5: found "80\a", want printable text`},
	} {
		_, err := adqsetup.Make(adqsetup.Input{Name: "create", Words: append([]string{}, strings.Fields(c.words)...),
			Options: []adqsetup.Option{{Key: "dev", Value: "eth4"}}})
		if err == nil {
			t.Errorf("%s: taken, want %s", c.words, c.want)
			continue
		}
		for _, line := range strings.Split(c.want, "\n") {
			if !strings.Contains(err.Error(), line) {
				t.Errorf("%s:\n got %s\nwant %s", c.words, err, line)
			}
		}
	}
}

// TestOptions checks that an option replaces the file's value, and that messages then name the
// option.
func TestOptions(t *testing.T) {
	source := "[globals]\ndev = eth4\nbusypoll = 1\n[web]\nqueues = 2\nports = 80\n"
	res, err := adqsetup.Make(adqsetup.Input{Name: "adq.conf", Text: []byte(source), Options: []adqsetup.Option{
		{Key: "dev", Value: "eth5"}, {Key: "busypoll", Value: "50"}, {Key: "txring", Value: "512"}}})
	must.Do(t, err)
	for _, want := range []string{"  dev: eth5\n", "  busypoll: 50\n", "  txring: 512\n"} {
		if !strings.Contains(res.Lanes, want) {
			t.Errorf("want %q in\n%s", want, res.Lanes)
		}
	}
	_, err = adqsetup.Make(adqsetup.Input{Name: "adq.conf", Text: []byte(source),
		Options: []adqsetup.Option{{Key: "cpus", Value: "a-b"}}})
	if err == nil || !strings.HasPrefix(err.Error(), "adq.conf:1: --cpus: found ") {
		t.Errorf("got %v, want --cpus named", err)
	}
	lane, _, _ := strings.Cut(res.Lanes, "    queues:")
	name, line, path := res.Locate("lanes.web.queues", strings.Count(lane, "\n")+1)
	if name != "adq.conf" || line != 5 || path != "web.queues" {
		t.Errorf("queues: got %s:%d: %s, want adq.conf:5: web.queues", name, line, path)
	}
	if _, _, path := res.Locate("globals.dev", 4); path != "--dev" {
		t.Errorf("dev: got %s, want the option", path)
	}
}

// TestDevices checks that, if no device is given, the only possible device is used.
func TestDevices(t *testing.T) {
	for _, c := range []struct {
		devices   []string
		dev, want string
	}{
		{[]string{"eth4"}, "eth4", ""},
		{[]string{"eth4", "eth5"}, "", "adq.conf:1: globals: dev is missing, and there are eth4, eth5; "},
		{nil, "", "adq.conf:1: globals: dev is missing"},
	} {
		res, err := adqsetup.Make(adqsetup.Input{Name: "adq.conf", Text: []byte("[web]\nqueues = 2\nports = 80\n"),
			Devices: c.devices})
		if c.want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%q: got %v, want %s", c.devices, err, c.want)
			}
		} else if err != nil || !strings.Contains(res.Lanes, "  dev: "+c.dev+"\n") {
			t.Errorf("%q: got %v", c.devices, err)
		}
	}
}

func TestOnlyJSON(t *testing.T) {
	_, err := adqsetup.Make(adqsetup.Input{Name: "adq.conf", Text: []byte("[web]\nqueues = 2\nports = 80\n"),
		JSON: true})
	if err == nil || err.Error() != "adq.conf:1: found no { at the beginning, want JSON, as --json says" {
		t.Errorf("got %v", err)
	}
}
