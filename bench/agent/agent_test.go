// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

// TestMain makes the test program act as niclane-bench for the processes that an agent starts.
// "internal-load" is a fake part that does what its configuration says.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 || len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "internal-") {
		switch os.Args[1] {
		case JobCommand:
			fmt.Fprintln(os.Stderr, JobMain(os.Args[2:]))
			os.Exit(1)
		case KeeperCommand:
			if err := KeeperMain(os.Args[2]); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case "internal-load":
			part()
		case "internal-agent":
			agentProcess(os.Args[2])
		}
	}
	os.Exit(vethtest.Isolate(m))
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// partConfig is the configuration of the fake part.
type partConfig struct {
	Say   string `json:"say,omitempty"`   // text for standard error
	Bytes int    `json:"bytes,omitempty"` // size of the result
	Fail  bool   `json:"fail,omitempty"`
	Hang  bool   `json:"hang,omitempty"`
	Deaf  bool   `json:"deaf,omitempty"` // ignores every signal that can be ignored
}

func part() {
	var c partConfig
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if c.Say != "" {
		fmt.Fprintln(os.Stderr, c.Say)
	}
	if c.Hang {
		select {}
	}
	if c.Fail {
		os.Exit(3)
	}
	fmt.Printf("{\"user\": %d, \"fill\": %q}\n", os.Getuid(), bytes.Repeat([]byte("x"), c.Bytes))
	os.Exit(0)
}

// agentProcess runs an agent in a process of its own, which a test can kill. It takes the
// agent's configuration as JSON and prints the agent's address.
func agentProcess(config string) {
	var c Config
	err := json.Unmarshal([]byte(config), &c)
	var a *Agent
	if err == nil {
		a, err = New(c)
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err == nil {
		fmt.Println(l.Addr())
		err = a.Serve(context.Background(), l)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// up sets the loopback device up: the tests run in a network namespace of their own.
var up = sync.OnceFunc(func() {
	if os.Geteuid() == 0 {
		_ = exec.Command("ip", "link", "set", "lo", "up").Run()
	}
})

// pki returns a directory with certificates for the loopback address.
func pki(t *testing.T) string {
	t.Helper()
	return certified(t, "127.0.0.1", DefaultClient, time.Now())
}

// certified returns a directory with certificates that are valid for an hour.
func certified(t *testing.T, host, client string, from time.Time) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := MakeCertificates(dir, []string{host}, client, time.Hour, from); err != nil {
		t.Fatal(err)
	}
	return dir
}

func filesOf(dir, name string) Files {
	return Files{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), filepath.Join(dir, AuthorityFile)}
}

func configured(t *testing.T, dir string) Config {
	return Config{
		Files: filesOf(dir, "127.0.0.1"), Clients: []string{DefaultClient}, Version: "v1", Self: self(),
		Dir: filepath.Join(t.TempDir(), "agent"), StateDir: filepath.Join(t.TempDir(), "state"),
		RunDir: filepath.Join(t.TempDir(), "run"),
		User:   "nobody", Lease: DefaultLease, Limit: time.Hour,
	}
}

// serve runs an agent until the test ends, and returns its address.
func serve(t *testing.T, c Config) (string, *Agent) {
	t.Helper()
	up()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if left, err := os.ReadDir(c.Dir); err == nil {
			for _, f := range left {
				if f.Name() != "lock" {
					t.Errorf("the agent has left %s", f.Name())
				}
			}
		}
	})
	return l.Addr().String(), a
}

func dial(t *testing.T, dir, address string) Dial {
	t.Helper()
	c, err := filesOf(dir, DefaultClient).Client()
	if err != nil {
		t.Fatal(err)
	}
	return Dial{Name: "sut", Address: address, TLS: c, Version: "v1",
		Opening: Opening{Purpose: "a test", Limit: int64(time.Hour)}}
}

func open(t *testing.T, d Dial) *Client {
	t.Helper()
	c, err := Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// served runs an agent and returns it with the data that a client needs to connect.
func served(t *testing.T, change func(*Config)) (Dial, *Agent) {
	t.Helper()
	dir := pki(t)
	c := configured(t, dir)
	if change != nil {
		change(&c)
	}
	address, a := serve(t, c)
	return dial(t, dir, address), a
}

// started runs an agent and opens a session with it.
func started(t *testing.T, change func(*Config)) (*Client, *Agent) {
	t.Helper()
	d, a := served(t, change)
	return open(t, d), a
}

func put(t *testing.T, c *Client, name, text string, private bool) {
	t.Helper()
	if err := c.Put(t.Context(), name, []byte(text), private); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, j *Job) {
	t.Helper()
	if err := j.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func request(what string, c partConfig) Request {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return Request{What: what, Part: "load", Config: text}
}

func start(t *testing.T, c *Client, r Request) *Job {
	t.Helper()
	j, err := c.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// ends waits for the end of a job.
func ends(t *testing.T, j *Job) End {
	t.Helper()
	select {
	case <-j.Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", j.What)
	}
	e, err := j.End()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wantError checks that an error contains all texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\nlacks %q", err, text)
		}
	}
}

func TestJobs(t *testing.T) {
	c, a := started(t, func(c *Config) { c.Commands = []string{"/usr/bin/sleep", "/usr/bin/env"} })
	e := ends(t, start(t, c, request("a part", partConfig{Say: "hello", Bytes: 10})))
	var got struct {
		User int
		Fill string
	}
	if err := json.Unmarshal(e.Result, &got); err != nil || e.Error != "" || e.Log != "hello\n" {
		t.Errorf("%+v, %v", e, err)
	}
	if os.Geteuid() == 0 && (got.User == 0 || got.User != a.uid) {
		t.Errorf("the part ran as user %d, want %d", got.User, a.uid)
	}
	if e := ends(t, start(t, c, request("fails",
		partConfig{Say: "for a reason", Fail: true}))); e.Error != "exit status 3: for a reason" || e.Result != nil {
		t.Errorf("%+v", e)
	}
	e = ends(t, start(t, c, Request{What: "a command", Command: []string{"env"}, Environment: []string{"COLOUR=a b"}}))
	if e.Error != "" || !strings.Contains(e.Log, "COLOUR=a b\n") ||
		!strings.Contains(e.Log, "PATH="+commandPath+"\n") || strings.Contains(e.Log, "HOME=") {
		t.Errorf("%+v", e)
	}
	j := start(t, c, Request{What: "sleeps", Command: []string{"/usr/bin/sleep", "1000"}})
	stop(t, j)
	if e := ends(t, j); e.Error != "signal: terminated" {
		t.Errorf("%+v", e)
	}
	if err := j.Stop(t.Context()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	p, err := c.Find(t.Context(), Search{Program: "sleep", Flag: "--version"})
	if err != nil || p.Path != "/usr/bin/sleep" || !strings.HasPrefix(p.Version, "sleep ") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestLogs(t *testing.T) {
	c, _ := started(t, nil)
	j := start(t, c, request("talks", partConfig{Say: "here I am", Hang: true}))
	r, w := io.Pipe()
	go func() { w.CloseWithError(j.Log(t.Context(), w)) }()
	b := make([]byte, len("here I am\n"))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "here I am\n" { // while it runs
		t.Fatalf("%q, %v", b, err)
	}
	stop(t, j)
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestRefusedJobs(t *testing.T) {
	c, _ := started(t, func(c *Config) { c.Commands = []string{"/usr/bin/sleep"} })
	for name, x := range map[string]struct {
		r    Request
		want string
	}{
		"not listed": {Request{What: "x", Command: []string{"true"}},
			"/usr/bin/true is not allowed: this agent was started with --allow-commands /usr/bin/sleep"},
		"not there": {Request{What: "x", Command: []string{"no-such"}}, `"no-such": executable file not found`},
		"relative": {Request{What: "x", Command: []string{"./sleep"}},
			`"./sleep": want a name or an absolute path`},
		"dots": {Request{What: "x", Command: []string{"/usr/bin/../bin/sleep"}},
			"want a name or an absolute path"},
		"no part": {Request{What: "x", Part: "nsexec", Config: []byte("{}")},
			`part "nsexec": want one of load noise`},
		"both": {Request{What: "x", Part: "load", Config: []byte("{}"), Command: []string{"sleep"}},
			"want either a part or a command"},
		"neither": {Request{What: "x"}, "want either a part or a command"},
		"preload": {Request{What: "x", Command: []string{"sleep"}, Environment: []string{"LD_PRELOAD=/x"}},
			"environment: an experiment cannot set LD_PRELOAD"},
		"path": {Request{What: "x", Command: []string{"sleep"}, Environment: []string{"PATH=/x"}},
			"an experiment cannot set PATH"},
		"environment": {Request{What: "x", Command: []string{"sleep"}, Environment: []string{"=1"}},
			"want NAME=VALUE"},
		"processor":      {Request{What: "x", Command: []string{"sleep"}, CPUs: []int{9999}}, "processor 9999"},
		"priority":       {Request{What: "x", Command: []string{"sleep"}, FIFO: 100}, "priority 100"},
		"terminal codes": {Request{What: "x\x1b[2J", Command: []string{"sleep"}}, "text in one line"},
		"large": {Request{What: "x", Command: []string{"sleep", strings.Repeat("1", maxArgument)}},
			"want at most 65536"},
		"larger": {Request{What: "x", Part: "load",
			Config: []byte(`"` + strings.Repeat("1", MaxRequest) + `"`)}, "a request larger than 1048576 bytes"},
		"no group": {Request{What: "x", Command: []string{"sleep"}, Member: true}, "no control group"},
	} {
		_, err := c.Start(t.Context(), x.r)
		if err == nil || !strings.Contains(err.Error(), x.want) ||
			!strings.HasPrefix(err.Error(), "host sut (agent 127.0.0.1:") {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	_, err := c.Apply(t.Context(), Lanes{Text: "version: 1\n", ConfirmWithin: 1e9})
	wantError(t, err, "started without --lanes")
	_, err = c.Apply(t.Context(), Lanes{Text: "version: 1\n", Card: 1, ConfirmWithin: 1e9})
	wantError(t, err, "lanes of card 1: this session has cards 0 to 0")
	var bad error
	for range maxJobs + 1 {
		if _, bad = c.Start(t.Context(), Request{What: "one of many", Command: []string{"sleep", "1000"}}); bad != nil {
			break
		}
	}
	wantError(t, bad, "257 jobs at once, want at most 256")
	if c.Err() != nil {
		t.Errorf("the session has ended: %v", c.Err())
	}
}

func TestLargeResult(t *testing.T) {
	c, _ := started(t, nil)
	if e := ends(t, start(t, c, request("tells too much", partConfig{Bytes: maxResult}))); !strings.Contains(e.Error,
		"larger than 67108864 bytes") || e.Result != nil {
		t.Errorf("%.200s, %d bytes", e.Error, len(e.Result))
	}
	if e := ends(t, start(t, c, request("tells much", partConfig{Bytes: 8 << 20}))); e.Error != "" ||
		len(e.Result) < 8<<20 {
		t.Errorf("%.200s, %d bytes", e.Error, len(e.Result))
	}
}

// processes lists the processes whose command line contains a text.
func processes(text string) (out []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(b), text) && !strings.Contains(string(b), JobCommand) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			out = append(out, pid)
		}
	}
	return out
}

// sleeper returns a unique duration for sleep, by which a test finds its own process.
func sleeper() string { return fmt.Sprintf("1%d.%d", os.Getpid(), time.Now().UnixNano()) }

// noProcesses checks that no process has a text in its command line.
func noProcesses(t *testing.T, text string) {
	t.Helper()
	if p := processes(text); len(p) > 0 {
		t.Errorf("processes %v are left", p)
	}
}

// absent checks that nothing exists at a path.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// asleep starts a job from shell and waits until its sleep runs. It returns the job and the
// sleep's duration.
func asleep(t *testing.T, c *Client) (j *Job, sleep string) {
	t.Helper()
	sleep = sleeper()
	j = start(t, c, shell("wait", sleep))
	waitFor(t, "it sleeps", func() bool { return len(processes("sleep\x00"+sleep)) == 1 })
	return j, sleep
}

// shell returns a request for a shell script. The script starts sleep in a Unix session of its
// own, and then runs the command ending. The agent must find the sleep even if the script has ended.
func shell(ending, sleep string) Request {
	return Request{What: "forks", Command: []string{"/usr/bin/sh", "-c",
		"setsid sleep " + sleep + " & trap '' TERM; " + ending}}
}

func TestEndOfSessionRestores(t *testing.T) {
	c, a := started(t, func(c *Config) { c.Any = true })
	sleep := sleeper()
	start(t, c, shell("wait; wait", sleep))
	start(t, c, shell("exit", sleep))
	put(t, c, "dir/file", "text", false)
	waitFor(t, "both sleep", func() bool { return len(processes("sleep\x00"+sleep)) == 2 })
	end(t, c)
	noProcesses(t, sleep)
	absent(t, filepath.Join(a.Dir, "files"))
	if _, err := c.Start(t.Context(), request("late", partConfig{})); err == nil {
		t.Error("a job after the end")
	}
	// The agent accepts another session.
	ends(t, start(t, open(t, c.dial), request("again", partConfig{})))
}

func TestSecondOrchestrator(t *testing.T) {
	c, _ := started(t, nil)
	d := c.dial
	d.Opening = Opening{Purpose: "another", Limit: 1e9}
	_, err := Open(t.Context(), d)
	wantError(t, err, "host sut (agent 127.0.0.1:", "the agent is held by "+DefaultClient+" at 127.0.0.1:",
		`for "a test"; one orchestrator at a time`)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Status != 409 {
		t.Errorf("%#v", err)
	}
	// A client must not use another client's session.
	thief := &Client{dial: c.dial, http: c.http, url: c.url, ctx: t.Context(), Welcome: Welcome{Session: "guessed"}}
	_, err = thief.Start(t.Context(), request("theft", partConfig{}))
	wantError(t, err, "the session has ended")
}

func TestVersions(t *testing.T) {
	d, _ := served(t, nil)
	d.Version = "v2"
	_, err := Open(t.Context(), d)
	wantError(t, err, "host sut", "niclane v1 (protocol "+Protocol+") on the other side, niclane v2 (protocol "+
		Protocol+") here: both have to be the same")
}

func TestOpeningIsChecked(t *testing.T) {
	d, _ := served(t, nil)
	d.Limit = int64(2 * time.Hour)
	_, err := Open(t.Context(), d)
	wantError(t, err, "a session of 2h0m0s: want at most 1h0m0s")
	d.Opening = Opening{Purpose: strings.Repeat("x", 8<<10), Limit: 1}
	_, err = Open(t.Context(), d)
	wantError(t, err, "opening of the session: ")
}

func TestSessionLimit(t *testing.T) {
	d, _ := served(t, nil)
	d.Limit = 1e8
	c := open(t, d)
	<-c.Lost()
	wantError(t, c.Err(), "host sut", "the agent has ended the session: its limit of 100ms has passed")
}

func TestClock(t *testing.T) {
	c, _ := started(t, nil)
	o, err := c.Offset(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Agent and client are on the same host, so the true offset is 0.
	if o.Uncertainty <= 0 || o.Uncertainty > 1e9 || max(o.Ns, -o.Ns) > o.Uncertainty {
		t.Errorf("%+v", o)
	}
	if got, want := offset(1000, 5500, 1201), (Offset{Ns: 4400, Uncertainty: 101, At: 1100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	a, b := Offset{Ns: 100, Uncertainty: 5, At: 1000}, Offset{Ns: 200, Uncertainty: 3, At: 2000}
	if got, want := Between(a, b, 1500), (Offset{Ns: 150, Uncertainty: 5, At: 1500}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Between(a, a, 1500); got.Ns != 100 {
		t.Errorf("%+v", got)
	}
}

func TestCounting(t *testing.T) {
	c, _ := started(t, nil)
	j := start(t, c, request("runs", partConfig{Hang: true}))
	end, err := c.Count(t.Context(), "", nil, map[string]*Job{"server": j})
	if err != nil {
		t.Fatal(err)
	}
	d, err := end(t.Context())
	if err != nil || d.Duration <= 0 || len(d.Processes) != 1 || d.Processes[0].Name != "server" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := end(t.Context()); err == nil {
		t.Error("a counting ended twice")
	}
	end, err = c.Count(t.Context(), "", nil, map[string]*Job{"server": j})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, j)
	_, err = end(t.Context())
	wantError(t, err, "host sut", "server (process ")
}

func TestFiles(t *testing.T) {
	c, a := started(t, nil)
	put(t, c, "a/b/c.conf", "text", false)
	put(t, c, "key.pem", "secret", true)
	var st unix.Stat_t
	// Only the jobs' group can write to Scratch. It is sticky: jobs cannot replace the agent's files.
	if err := unix.Stat(c.Host.Scratch, &st); err != nil || a.drop &&
		(st.Mode&0o7777 != unix.S_ISVTX|0o770 || st.Uid != 0 || int(st.Gid) != a.gid) {
		t.Errorf("mode %o, user %d, group %d: %v", st.Mode, st.Uid, st.Gid, err)
	}
	if err := unix.Stat(filepath.Join(c.Host.Scratch, "key.pem"), &st); err != nil || st.Mode&0o777 != 0o600 ||
		int(st.Uid) != a.uid {
		t.Errorf("mode %o, user %d: %v", st.Mode, st.Uid, err)
	}
	for _, name := range []string{"", "..", "../x", "a/../../x", "/etc/x", "a//b", ".x", "a/.x/b", "a\x00b", "a/./b",
		strings.Repeat("x", 600)} {
		if err := c.do(t.Context(), "PUT", "/files/"+name, []byte("x"), nil); err == nil {
			t.Errorf("file %q was written", name)
		}
	}
	// A job can make a symbolic link in Scratch. The agent must not follow it.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(c.Host.Scratch, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(c.Host.Scratch, "linkdir")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "linkdir/outside"} {
		if err := c.Put(t.Context(), name, []byte("x"), false); err == nil {
			t.Errorf("%s was followed", name)
		}
	}
	absent(t, outside)
	if err := c.Put(t.Context(), "large", make([]byte, maxFile+1), false); err == nil {
		t.Error("a file beyond the bound")
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = c.Put(t.Context(), fmt.Sprintf("many%d", i), make([]byte, maxFile), false)
	}
	wantError(t, err, "more than 67108864 bytes of files")
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: mounts a small file system")
	}
	small := t.TempDir()
	err := unix.Mount("small", small, "tmpfs", 0, "size=64k,mode=755")
	if errors.Is(err, unix.EPERM) {
		t.Skipf("root without CAP_SYS_ADMIN: mount: %v", err)
	}
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	d, _ := served(t, func(c *Config) { c.Dir = filepath.Join(small, "agent") })
	s := open(t, d)
	err = s.Put(t.Context(), "big", make([]byte, 100_000), false)
	wantError(t, err, "host sut", "no space left on device")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Status != 507 {
		t.Errorf("%#v", err)
	}
	if err := s.Put(t.Context(), "small", []byte("fits"), false); err != nil {
		t.Errorf("after a file that did not fit: %v", err)
	}
	end(t, s)
	if err := os.WriteFile(filepath.Join(small, "fill"), make([]byte, 80<<10), 0o600); err == nil {
		t.Fatal("the file system is not full")
	}
	_, err = Open(t.Context(), d)
	wantError(t, err, "host sut", "no space left on device")
	if err := os.Remove(filepath.Join(small, "fill")); err != nil {
		t.Fatal(err)
	}
	open(t, d)
}

func TestNewRefuses(t *testing.T) {
	dir := pki(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	readable := filepath.Join(t.TempDir(), "readable.key")
	text, err := os.ReadFile(filesOf(dir, "127.0.0.1").Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(readable, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nobody may come": {func(c *Config) { c.Clients = nil }, "no clients"},
		"lease":           {func(c *Config) { c.Lease = time.Second }, "lease 1s: want 2s to 5m0s"},
		"command":         {func(c *Config) { c.Commands = []string{"sleep"} }, "command sleep: want an absolute path"},
		"no key":          {func(c *Config) { c.Files.Key = "none" }, "certificate "},
		"key for all":     {func(c *Config) { c.Files.Key = readable }, "mode 0644 lets others read it, want 0600"},
		"other key": {func(c *Config) { c.Files.Key = filesOf(dir, DefaultClient).Key },
			"private key does not match public key"},
		"authority":      {func(c *Config) { c.Files.Authority = c.Files.Key }, "no certificate in it"},
		"open directory": {func(c *Config) { c.Dir = open }, "want a directory of user"},
		"root":           {func(c *Config) { c.User = "root" }, "user root is root"},
		"no user":        {func(c *Config) { c.User = "no-such-user" }, "no-such-user"},
		"no group":       {func(c *Config) { c.User = "nobody:no-such-group" }, "no-such-group"},
	} {
		c := configured(t, dir)
		x.change(&c)
		if os.Geteuid() != 0 && slices.Contains([]string{"root", "no user", "no group"}, name) {
			continue
		}
		a, err := New(c)
		if err == nil {
			t.Errorf("%s: no error", name)
			_ = a.Close()
			continue
		}
		if !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	c := configured(t, dir)
	serve(t, c)
	_, err = New(c)
	wantError(t, err, "another agent uses it")
}

// TestNewRestores: if an agent and its keeper were killed, the next agent restores the host.
func TestNewRestores(t *testing.T) {
	dir := pki(t)
	c := configured(t, dir)
	lock, err := lockDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r := record{Session: "left", Files: filepath.Join(c.Dir, "files")}
	if err := errors.Join(r.write(c.Dir), os.MkdirAll(filepath.Join(r.Files, "a"), 0o755), lock.Close()); err != nil {
		t.Fatal(err)
	}
	sleep := sleeper()
	cmd := exec.Command("sh", "-c", "trap '' TERM; sleep "+sleep+"; true")
	cmd.Env = append(os.Environ(), marker+"=left")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	serve(t, c)
	<-done
	noProcesses(t, "sleep\x00"+sleep)
}

// TestKeeperMakesNothing: if the agent's directory or its lock file is gone, the keeper creates
// nothing and ends without an error.
func TestKeeperMakesNothing(t *testing.T) {
	there := t.TempDir()
	gone := filepath.Join(t.TempDir(), "gone")
	for _, dir := range []string{there, gone} {
		if out, err := exec.Command(self(), KeeperCommand, dir).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", dir, err, out)
		}
	}
	if made, err := os.ReadDir(there); err != nil || len(made) > 0 {
		t.Errorf("made %v, %v", made, err)
	}
	absent(t, gone)
}

func TestCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	made, err := MakeCertificates(dir, []string{"a.example", "192.0.2.1", "fd00::1"}, "me", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 9 {
		t.Errorf("%v", made)
	}
	for _, path := range made {
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, st, err)
		}
		if strings.HasSuffix(path, "ca.key") {
			t.Error("the authority's key is kept")
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, AuthorityFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakeCertificates(dir, []string{"b.example"}, "other", time.Hour, time.Now()); !errors.Is(err,
		os.ErrExist) {
		t.Errorf("overwritten: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, AuthorityFile)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the authority has changed: %v", err)
	}
	absent(t, filepath.Join(dir, "b.example.pem"))
	for name, x := range map[string]struct {
		hosts []string
		valid time.Duration
		want  string
	}{
		"none":     {nil, time.Hour, "no hosts"},
		"twice":    {[]string{"a", "a"}, time.Hour, "a: found twice"},
		"ca":       {[]string{"ca"}, time.Hour, "the authority's"},
		"name":     {[]string{"../a"}, time.Hour, `"../a": want the name or address of a host`},
		"for ever": {[]string{"a"}, MaxValidity + time.Hour, "want 1m to"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := MakeCertificates(filepath.Join(t.TempDir(), "x"), x.hosts, "me", x.valid, time.Now())
			wantError(t, err, x.want)
		})
	}
}
