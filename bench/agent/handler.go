// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/lane/observe"
)

// heldError says which client has the agent's only session.
type heldError struct{ by string }

func (e *heldError) Error() string {
	return "the agent is held by " + e.by + "; one orchestrator at a time"
}

// handler returns the handler of all requests. It checks the client's certificate and version
// before it reads anything else.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session", a.serveSession)
	for pattern, serve := range map[string]service{
		"GET /clock":           func(*session, *http.Request) (any, error) { return Time{thread.Monotonic()}, nil },
		"POST /jobs":           begins((*session).add),
		"GET /jobs/{id}":       serveWait,
		"POST /jobs/{id}/stop": serveStop,
		"PUT /files/{name...}": servePut,
		"POST /find":           reads((*session).find),
		"POST /ask":            reads((*session).ask),
		"POST /lanes":          reads((*session).apply),
		"POST /lanes/confirm":  func(s *session, r *http.Request) (any, error) { return nil, s.confirm(r.Context()) },
		"DELETE /lanes":        func(s *session, _ *http.Request) (any, error) { return nil, s.rollback() },
		"POST /countings":      begins((*session).count),
		"POST /countings/{id}": numbered((*session).counted),
		"POST /meters":         begins((*session).meter),
		"POST /meters/{id}":    numbered((*session).metered),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s := a.held(r.Header.Get(headerSession))
			if s == nil {
				answer(w, http.StatusGone, failure{errClosed.Error()})
				return
			}
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.ctx, cancel)()
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
			x, err := serve(s, r.WithContext(ctx))
			if err != nil {
				fail(w, err)
				return
			}
			answer(w, http.StatusOK, x)
		})
	}
	mux.HandleFunc("GET /jobs/{id}/log", a.serveLog)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerProtocol, Protocol)
		w.Header().Set(headerVersion, a.Version)
		name, err := known(r.TLS, a.Clients)
		if err != nil {
			a.log.Printf("refused %s: %v", r.RemoteAddr, err)
			answer(w, http.StatusForbidden, failure{err.Error()})
			return
		}
		if err := sameVersion(r.Header, a.Version); err != nil {
			a.log.Printf("refused %s at %s: %v", name, r.RemoteAddr, err)
			answer(w, http.StatusUpgradeRequired, failure{err.Error()})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxRequest)
		mux.ServeHTTP(w, r)
	})
}

// A service handles one kind of request of a session.
type service func(*session, *http.Request) (any, error)

// reads returns a service that passes the request's decoded body to do.
func reads[Q, A any](do func(*session, context.Context, Q) (A, error)) service {
	return func(s *session, r *http.Request) (any, error) {
		q, err := decode[Q](r.Body)
		if err != nil {
			return nil, err
		}
		return do(s, r.Context(), q)
	}
}

// begins returns a service that starts an activity with begin and answers with its number.
func begins[Q any](begin func(*session, Q) (int, error)) service {
	return reads(func(s *session, _ context.Context, q Q) (Started, error) {
		id, err := begin(s, q)
		return Started{id}, err
	})
}

// numbered returns a service that passes the number in the request's path to do.
func numbered[A any](do func(*session, int) (A, error)) service {
	return func(s *session, r *http.Request) (any, error) {
		id, err := number(r)
		if err != nil {
			return nil, err
		}
		return do(s, id)
	}
}

// held returns the present session if it has this ID, else nil.
func (a *Agent) held(id string) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil || a.session.id != id || a.session.ctx.Err() != nil {
		return nil
	}
	return a.session
}

// sameVersion returns an error if the other side has another version of niclane or of the
// protocol.
func sameVersion(h http.Header, version string) error {
	protocol, theirs := h.Get(headerProtocol), h.Get(headerVersion)
	if protocol == Protocol && theirs == version {
		return nil
	}
	if protocol == "" {
		return errors.New("the other side is not niclane")
	}
	return fmt.Errorf("niclane %.100s (protocol %.20s) on the other side, niclane %s (protocol %s) here: both have "+
		"to be the same", theirs, protocol, version, Protocol)
}

func answer(w http.ResponseWriter, status int, x any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if x == nil {
		x = struct{}{}
	}
	_ = json.NewEncoder(w).Encode(x) // an error means that the client is gone
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var large *http.MaxBytesError
	var held *heldError
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
		err = fmt.Errorf("a request larger than %d bytes", large.Limit)
	case errors.As(err, &held):
		status = http.StatusConflict
	case errors.Is(err, unix.ENOSPC):
		status = http.StatusInsufficientStorage
	case errors.Is(err, errClosed):
		status = http.StatusGone
	}
	answer(w, status, failure{err.Error()})
}

// decode reads one JSON value. Unknown keys and a second value are errors.
func decode[T any](in io.Reader) (T, error) {
	var x T
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return x, fmt.Errorf("request: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return x, errors.New("request: more than one value")
	}
	return x, nil
}

// serveSession serves the request that lasts as long as its session.
func (a *Agent) serveSession(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	owner, _ := known(r.TLS, a.Clients)
	// The opening must fit into this buffer: ReadSlice refuses a longer line.
	body := bufio.NewReaderSize(r.Body, 4<<10)
	_ = rc.SetReadDeadline(time.Now().Add(headerTime))
	first, err := body.ReadSlice('\n')
	if err != nil {
		fail(w, fmt.Errorf("opening of the session: %w", err))
		return
	}
	o, err := decode[Opening](bytes.NewReader(first))
	if err == nil {
		err = o.check(a.Limit)
	}
	if err != nil {
		fail(w, err)
		return
	}
	s, warnings, err := a.open(owner, r.RemoteAddr, o)
	if err != nil {
		a.log.Printf("refused %s at %s: %v", owner, r.RemoteAddr, err)
		fail(w, err)
		return
	}
	a.log.Printf("session of %s", s)
	why := s.hold(w, rc, body, r, o, warnings)
	err = s.close(why)
	end := ending{Reason: why.Error()}
	if err != nil {
		end.Errors = append(end.Errors, err.Error())
		a.log.Printf("session ended, %v; NOT restored: %v", why, err)
	} else {
		a.log.Printf("session ended, %v; the host is restored", why)
	}
	_ = rc.SetWriteDeadline(time.Now().Add(a.Lease))
	_ = json.NewEncoder(w).Encode(line{Ended: &end})
	_ = rc.Flush()
}

// errEnded is the reason of a session's regular end.
var errEnded = errors.New("its orchestrator has ended it")

// hold keeps a session until it must end, and returns why it ends.
func (s *session) hold(w http.ResponseWriter, rc *http.ResponseController, body *bufio.Reader, r *http.Request,
	o Opening, warnings []string) error {
	a := s.agent
	out := json.NewEncoder(w)
	say := func(x any) error {
		if err := rc.SetWriteDeadline(time.Now().Add(a.Lease)); err != nil {
			return err
		}
		return errors.Join(out.Encode(x), rc.Flush())
	}
	host, more := a.describe(r.Context(), s, o)
	if err := say(Welcome{Session: s.id, Lease: int64(a.Lease), Host: host,
		Warnings: append(warnings, more...)}); err != nil {
		return fmt.Errorf("its orchestrator is lost: %w", err)
	}
	heard, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for {
			// The next heartbeat must come within the lease.
			_ = rc.SetReadDeadline(time.Now().Add(a.Lease))
			_, err := body.Discard(1)
			if err != nil {
				ended <- err
				return
			}
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	}()
	beat := time.NewTicker(Beat)
	defer beat.Stop()
	limit := time.NewTimer(time.Duration(o.Limit))
	defer limit.Stop()
	quiet := time.NewTimer(a.Lease)
	defer quiet.Stop()
	for {
		select {
		case <-heard:
			quiet.Reset(a.Lease)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return errEnded
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("its orchestrator was silent for %v", a.Lease)
			}
			return fmt.Errorf("its orchestrator is lost: %w", err)
		case <-quiet.C:
			return fmt.Errorf("its orchestrator was silent for %v", a.Lease)
		case <-limit.C:
			return fmt.Errorf("its limit of %v has passed", time.Duration(o.Limit))
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-r.Context().Done():
			return errors.New("its orchestrator is lost: the connection has ended")
		case <-beat.C:
			if err := say(line{}); err != nil {
				return fmt.Errorf("its orchestrator is lost: %w", err)
			}
		}
	}
}

// describe returns a description of the host and of the network devices of an opening. It also returns
// warnings about what it could not read.
func (a *Agent) describe(ctx context.Context, s *session, o Opening) (Host, []string) {
	h := Host{Host: machine.Describe(), Root: a.root, Lanes: a.Devices, Tune: a.Tune, Scratch: s.files(),
		Storage: s.storage, Cgroup: s.group.Path, Awake: s.latency != nil, User: strconv.Itoa(a.uid)}
	if u, err := user.LookupId(h.User); err == nil {
		h.User = u.Username
	}
	var warnings []string
	var err error
	if h.Hostname, err = os.Hostname(); err != nil {
		warnings = append(warnings, err.Error())
	}
	if h.Processors, err = thread.Allowed(); err != nil {
		warnings = append(warnings, err.Error())
	}
	for i, dev := range append([]string{o.Device}, o.Cards...) {
		if dev == "" {
			continue
		}
		d, err := describeDevice(ctx, dev)
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		switch {
		case d == nil:
		case i == 0:
			h.Device = d
		default:
			h.Cards = append(h.Cards, *d)
		}
	}
	return h, warnings
}

// describeDevice returns a description of a network device; nil: it was not found. With an error, the
// description may lack what could not be read.
func describeDevice(ctx context.Context, dev string) (*Device, error) {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("%.40q: %w", dev, err)
	}
	d := &Device{Name: dev, MTU: i.MTU}
	state, err := observe.Observe(ctx, observe.Options{Devices: []string{dev}, NoProbes: true})
	if err != nil {
		return d, err
	}
	for _, x := range state.Devices {
		if x.Name == dev {
			d.Speed, d.Queues, d.Driver, d.Version, d.Firmware, d.Bus = x.Speed, x.RxQueues, x.Driver, x.Version,
				x.Firmware, x.Bus
		}
	}
	return d, nil
}

// number returns the number of a job, a counting or a meter in the path of a request.
func number(r *http.Request) (int, error) {
	text := r.PathValue("id")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%.20q: want a number", text)
	}
	return n, nil
}

func (s *session) asked(r *http.Request) (*job, int, error) {
	id, err := number(r)
	if err != nil {
		return nil, 0, err
	}
	j, err := s.job(id)
	return j, id, err
}

func serveWait(s *session, r *http.Request) (any, error) {
	j, id, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	select {
	case <-j.done:
		s.forget(id)
		return j.end(), nil
	case <-r.Context().Done():
		return nil, errClosed
	}
}

func serveStop(s *session, r *http.Request) (any, error) {
	j, _, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	return nil, j.stop()
}

// serveLog streams a job's output until it has ended.
func (a *Agent) serveLog(w http.ResponseWriter, r *http.Request) {
	s := a.held(r.Header.Get(headerSession))
	if s == nil {
		answer(w, http.StatusGone, failure{errClosed.Error()})
		return
	}
	j, _, err := s.asked(r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rc := http.NewResponseController(w)
	for n := int64(0); ; {
		text, written, more := j.log.since(n)
		n = written
		_ = rc.SetWriteDeadline(time.Now().Add(bodyTime))
		if _, err := w.Write(text); err != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-j.done:
			text, _, _ := j.log.since(n)
			_, _ = w.Write(text)
			return
		}
	}
}

func servePut(s *session, r *http.Request) (any, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return nil, s.put(r.PathValue("name"), r.URL.Query().Has("private"), text)
}

// versionTime is how long a program may take to print its version.
const versionTime = 5 * time.Second

// find looks for a program that the agent may start. With q.Flag, it also asks for the version.
func (s *session) find(ctx context.Context, q Search) (Program, error) {
	path, err := s.agent.allowed(q.Program)
	if err != nil || q.Flag == "" {
		return Program{Path: path}, err
	}
	return Program{path, s.version(ctx, path, q.Flag)}, nil
}

// version returns the first line that a program prints when it is started with flag. If the
// program fails or is too slow, it returns "".
func (s *session) version(ctx context.Context, path, flag string) string {
	id, err := s.add(Request{What: "version", Command: []string{path, flag}})
	if err != nil {
		return ""
	}
	defer s.forget(id)
	j, err := s.job(id)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	select {
	case <-j.done:
	case <-ctx.Done():
		_ = j.stop()
	}
	if j.err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(j.log.String()), "\n")
	return line
}

// ask connects to a server from this host and sends one question.
func (s *session) ask(ctx context.Context, q Asking) (any, error) {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return nil, ready.Ask(ctx, dial, q.Address, q.Question)
}
