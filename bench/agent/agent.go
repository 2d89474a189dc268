// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/niclane/niclane/internal/few"
)

// Config is the configuration of an Agent.
type Config struct {
	// Files are the agent's TLS files. Clients are the names of the clients that may connect.
	Files   Files
	Clients []string
	// Version is the version of niclane. The orchestrator must have the same version.
	Version string
	// Self is the path of niclane-bench. The agent runs it to start each job.
	Self string
	// Dir is the agent's own directory. New creates it.
	Dir string
	// StateDir and RunDir are the directories of niclane's journals and lock.
	StateDir, RunDir string
	// Commands are the paths of the commands that the agent may start. Any allows all commands.
	Commands []string
	Any      bool
	// User is the user of the jobs if the agent is root: USER or USER:GROUP.
	User string
	// Devices are the network devices on which the agent may make lanes. Only root can make them.
	Devices []string
	// Tune are words: what beside network and Devices an experiment may tune. AllowProcessors, or
	// the name of a service of systemd that it may stop and start again.
	Tune []string
	// Lease is how long an orchestrator may be silent. Limit is how long a session may last.
	Lease, Limit time.Duration
	// Log gets a line for each event; nil: no log.
	Log io.Writer
	// Sysfs is the directory of the power sensors; "" is /sys. Tests use another.
	Sysfs string
}

// An Agent serves sessions on a host.
type Agent struct {
	Config
	root, drop bool
	uid, gid   int
	log        *log.Logger
	lock       *os.File
	spawner    *spawner
	tls        *tls.Config

	mu      sync.Mutex
	session *session
	broken  error // why the host could not be restored
}

// DefaultUser is the default of Config.User, a user without privileges.
const DefaultUser = "nobody"

// Listening is the text that "niclane bench serve" prints on standard output, before its address,
// as soon as it accepts connections.
const Listening = "listening on "

// New checks the configuration and locks the agent's directory. It restores the host if an
// earlier agent did not.
func New(c Config) (*Agent, error) {
	if c.Log == nil {
		c.Log = io.Discard
	}
	a := &Agent{Config: c, root: os.Geteuid() == 0, uid: os.Getuid(), gid: os.Getgid(),
		log: log.New(c.Log, "", log.LstdFlags|log.LUTC)}
	if len(c.Clients) == 0 {
		return nil, errors.New("no clients: want the names in the certificates of the orchestrators that may connect")
	}
	if c.Lease < MinLease || c.Lease > MaxLease {
		return nil, fmt.Errorf("lease %v: want %v to %v", c.Lease, MinLease, MaxLease)
	}
	if len(c.Devices) > 0 && !a.root {
		return nil, errors.New("lanes need root")
	}
	if len(c.Tune) > 0 && !a.root {
		return nil, errors.New("to tune the machine needs root")
	}
	for _, path := range c.Commands {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("command %s: want an absolute path", path)
		}
	}
	if err := a.findUser(); err != nil {
		return nil, err
	}
	var err error
	if a.tls, err = c.Files.server(); err != nil {
		return nil, err
	}
	if a.lock, err = lockDir(c.Dir); err != nil {
		return nil, err
	}
	if err := restore(c.Dir); err != nil {
		a.lock.Close()
		return nil, fmt.Errorf("restore the host after an earlier agent: %w", err)
	}
	a.spawner = newSpawner()
	return a, nil
}

func (a *Agent) findUser() error {
	if !a.root {
		return nil
	}
	name, group, named := strings.Cut(a.User, ":")
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	if named {
		g, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		u.Gid = g.Gid
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if uid == 0 {
		return fmt.Errorf("user %s is root: want an unprivileged user for jobs", a.User)
	}
	a.drop, a.uid, a.gid = true, uid, gid
	return nil
}

// allowed returns the path of a program, or an error if the agent may not start it.
func (a *Agent) allowed(program string) (string, error) {
	path, err := find(program)
	if err != nil {
		return "", err
	}
	switch {
	case a.Any || slices.Contains(a.Commands, path):
		return path, nil
	case len(a.Commands) == 0:
		return "", fmt.Errorf("%s is not allowed: this agent was started without --allow-commands", path)
	}
	return "", fmt.Errorf("%s is not allowed: this agent was started with --allow-commands %s", path,
		strings.Join(a.Commands, ","))
}

// find returns the path of a program. It looks for a name without a slash in commandPath. A name
// with a slash must be an absolute path.
func find(program string) (string, error) {
	if strings.ContainsRune(program, '/') {
		if !filepath.IsAbs(program) || filepath.Clean(program) != program {
			return "", fmt.Errorf("%.100q: want a name or an absolute path", program)
		}
		return exec.LookPath(program)
	}
	for dir := range strings.SplitSeq(commandPath, ":") {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%.100q: %w in %s", program, exec.ErrNotFound, commandPath)
}

// Limits of a connection.
const (
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	maxHeader  = 16 << 10
)

// Close closes an agent for which Serve is not called. Serve closes its agent itself.
func (a *Agent) Close() error {
	a.spawner.close()
	return a.lock.Close()
}

// Serve serves clients on l until ctx ends. It then ends the session, which restores the host,
// and closes the agent.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	defer a.lock.Close()
	defer a.spawner.close()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	s := &http.Server{
		Handler: a.handler(), TLSConfig: a.tls, Protocols: protocols,
		ErrorLog: log.New(a.Log, "", log.LstdFlags|log.LUTC),
		// The server's own read and write timeouts would end a session. Each request sets deadlines.
		ReadHeaderTimeout: headerTime, MaxHeaderBytes: maxHeader, IdleTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: a.Lease, PingTimeout: a.Lease},
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateActive { // after the handshake: the client has a verified certificate
				few.Heard(c)
			}
		},
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeTLS(few.Listen(l, maxStrangers, maxConns), "", "") }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// After cancel, the handler of the session's request restores the host and returns.
	a.mu.Lock()
	held := a.session
	a.mu.Unlock()
	if held != nil {
		held.cancel(errors.New("the agent was told to end"))
	}
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*rollbackTime)
	defer cancel()
	if ctx.Err() == nil {
		return err
	}
	return errors.Join(s.Shutdown(down), a.broken)
}
