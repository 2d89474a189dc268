// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/power"
)

// A Dial says which agent to connect to, and how.
type Dial struct {
	// Name is the host's name in errors. Address is that of its agent, HOST:PORT.
	Name, Address string
	// ServerName is the name that the agent's certificate must have; "": the host of Address.
	ServerName string
	TLS        *tls.Config // from Files.Client
	Version    string      // version of niclane
	// Connect opens connections; nil: a net.Dialer does.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	Opening
}

// A Client is a session with an agent. Its errors name the host.
type Client struct {
	Welcome
	dial Dial
	http *http.Client
	url  url.URL

	body   *io.PipeWriter
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	heard  chan struct{}
	ended  chan ending // the agent's last message
	read   chan struct{}
	once   sync.Once
}

// connectTime limits the start of a session. The agent may first have to restore an earlier
// session.
const connectTime = 30 * time.Second

// Open starts a session.
func Open(ctx context.Context, d Dial) (*Client, error) {
	c := &Client{dial: d, url: url.URL{Scheme: "https", Host: d.Address}, heard: make(chan struct{}, 1),
		ended: make(chan ending, 1), read: make(chan struct{})}
	if c.dial.Connect == nil {
		c.dial.Connect = (&net.Dialer{Timeout: headerTime}).DialContext
	}
	config := d.TLS.Clone()
	if config.ServerName = d.ServerName; config.ServerName == "" {
		host, _, err := net.SplitHostPort(d.Address)
		if err != nil {
			return nil, c.fault(err)
		}
		config.ServerName = host
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	// hear ends the session when the agent is silent for longer than the lease. The connection's
	// own timeouts must not end it earlier.
	c.http = &http.Client{
		// One connection for all requests: the session ends with it.
		Transport: &http.Transport{
			TLSClientConfig: config, Protocols: protocols, TLSHandshakeTimeout: headerTime,
			MaxResponseHeaderBytes: maxHeader, DialContext: c.dial.Connect, DisableCompression: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: MinLease, PingTimeout: MaxLease,
				StrictMaxConcurrentRequests: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	// ctx limits the start only. The session lasts until Close.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := c.greet(ctx, config)
	if err != nil {
		err = c.fault(err)
	} else {
		err = c.open(ctx)
	}
	if err != nil {
		c.cancel(err)
		c.http.CloseIdleConnections()
		return nil, err
	}
	go c.hear()
	go c.beat()
	return c, nil
}

func (c *Client) open(ctx context.Context) error {
	slow := time.AfterFunc(connectTime, func() { c.cancel(fmt.Errorf("no answer within %v", connectTime)) })
	defer slow.Stop()
	defer context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })()
	body, w := io.Pipe()
	c.body = w
	go func() {
		first, err := json.Marshal(c.dial.Opening)
		if err == nil {
			_, err = w.Write(append(first, '\n'))
		}
		if err != nil {
			w.CloseWithError(err)
		}
	}()
	r, err := c.request(c.ctx, http.MethodPost, "/session", body)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(r.Body, 1<<20)
	first, err := in.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(first, &c.Welcome)
	}
	if err != nil {
		return errors.Join(c.fault(fmt.Errorf("its welcome: %w", err)), r.Body.Close())
	}
	if l := time.Duration(c.Lease); l < MinLease || l > MaxLease || c.Session == "" {
		return errors.Join(c.fault(fmt.Errorf("its welcome: a lease of %v", l)), r.Body.Close())
	}
	go c.listen(in, r.Body)
	return nil
}

// listen reads the lines that the agent sends in the session, until the last line or an error.
func (c *Client) listen(in *bufio.Reader, body io.Closer) {
	defer close(c.read)
	defer body.Close()
	for {
		text, err := in.ReadSlice('\n')
		if err != nil {
			c.cancel(fmt.Errorf("the agent is lost: %w", err))
			return
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			c.cancel(fmt.Errorf("the agent sent something that is no part of a session: %w", err))
			return
		}
		if l.Ended != nil {
			c.ended <- *l.Ended
			c.cancel(fmt.Errorf("the agent has ended the session: %s", l.Ended.Reason))
			return
		}
		select {
		case c.heard <- struct{}{}:
		default:
		}
	}
}

// hear ends the session when the agent is silent for longer than the lease.
func (c *Client) hear() {
	lease := time.Duration(c.Lease)
	quiet := time.NewTimer(lease)
	defer quiet.Stop()
	for {
		select {
		case <-c.heard:
			quiet.Reset(lease)
		case <-quiet.C:
			c.cancel(fmt.Errorf("the agent is lost: silent for %v", lease))
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// beat sends the client's heartbeats until the session ends.
func (c *Client) beat() {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// The error is not reported here: listen reports why the connection failed.
			if _, err := c.body.Write([]byte{'\n'}); err != nil {
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// Lost returns a channel that is closed when the session ends. Err says why it ended.
func (c *Client) Lost() <-chan struct{} { return c.ctx.Done() }

// Err returns nil while the session lasts, and then why it ended.
func (c *Client) Err() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return c.fault(context.Cause(c.ctx))
}

// Close ends the session and waits until the host is restored or ctx ends. The error says what
// the agent could not restore, or that it is not known whether the host is restored.
func (c *Client) Close(ctx context.Context) error {
	var err error
	c.once.Do(func() {
		defer c.http.CloseIdleConnections()
		_ = c.body.Close()
		select {
		case <-c.read:
		case <-ctx.Done():
			err = c.fault(fmt.Errorf("it is not known whether the host is restored: %w", context.Cause(ctx)))
			c.cancel(err)
			return
		}
		select {
		case end := <-c.ended:
			c.cancel(errClosed)
			if len(end.Errors) > 0 {
				err = c.fault(fmt.Errorf("not restored: %s", strings.Join(end.Errors, "; ")))
			}
		default:
			err = c.Err()
		}
	})
	return err
}

// fault adds the host's name to an error.
func (c *Client) fault(err error) error {
	return fmt.Errorf("host %s (agent %s): %w", c.dial.Name, c.dial.Address, err)
}

// request sends a request and returns its answer if the status is 200.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	u := c.url
	u.Path, u.RawQuery, _ = strings.Cut(path, "?")
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, c.fault(err)
	}
	r.Header.Set(headerProtocol, Protocol)
	r.Header.Set(headerVersion, c.dial.Version)
	r.Header.Set(headerSession, c.Session)
	a, err := c.http.Do(r)
	if err != nil {
		return nil, c.fault(c.explain(ctx, err))
	}
	if err := sameVersion(a.Header, c.dial.Version); err != nil {
		return nil, errors.Join(c.fault(err), a.Body.Close())
	}
	if a.StatusCode == http.StatusOK {
		return a, nil
	}
	defer a.Body.Close()
	var f failure
	text, err := io.ReadAll(io.LimitReader(a.Body, MaxRequest))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.Error == "" {
		f.Error = a.Status
	}
	return nil, c.fault(&RefusedError{a.StatusCode, f.Error})
}

// A RefusedError is an agent's answer with a status other than 200.
type RefusedError struct {
	Status int // HTTP status
	Text   string
}

func (e *RefusedError) Error() string { return e.Text }

// explain returns why a request got no answer. If the session or ctx has ended, this is the reason of
// that end, else it is err.
func (c *Client) explain(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if c.Session != "" {
		// The session uses the same connection. Wait for the session's error, which is more precise.
		noticed := time.NewTimer(time.Second)
		defer noticed.Stop()
		select {
		case <-c.ctx.Done():
		case <-ctx.Done():
		case <-noticed.C:
		}
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// greet opens a separate connection to learn whether the agent accepts the client's certificate.
// In TLS 1.3, the agent refuses a certificate only after the client has finished the handshake. If
// the client sent a request at once, it would fail with "broken pipe", without the reason. So greet
// sends nothing and waits for the agent's first byte: a server of HTTP/2 sends first.
func (c *Client) greet(ctx context.Context, config *tls.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, headerTime, fmt.Errorf("no answer within %v", headerTime))
	defer cancel()
	plain, err := c.dial.Connect(ctx, "tcp", c.dial.Address)
	if err == nil {
		conn := tls.Client(plain, config)
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
		if err = conn.HandshakeContext(ctx); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
	}
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &verify):
		return fmt.Errorf("the agent's certificate does not verify: %w", verify.Err)
	case errors.As(err, &record):
		return fmt.Errorf("no agent there: it does not speak TLS: %w", err)
	case strings.Contains(err.Error(), "remote error: tls: no application protocol"):
		return fmt.Errorf("no agent there: it does not speak HTTP/2: %w", err)
	case strings.Contains(err.Error(), "remote error: tls: "): // crypto/tls has no type for it
		return fmt.Errorf("the agent refuses this side's certificate: %w", err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// do sends a request. Its body is send: bytes as they are, another value as JSON. The answer's
// JSON is stored in into, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, send, into any) error {
	var body io.Reader
	switch x := send.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(x)
	default:
		text, err := json.Marshal(x)
		if err != nil {
			return c.fault(err)
		}
		body = bytes.NewReader(text)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	a, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, 2*maxResult+1))
	switch {
	case err != nil:
		err = c.explain(ctx, err)
	case len(text) > 2*maxResult:
		err = fmt.Errorf("an answer of more than %d bytes", 2*maxResult)
	case into != nil:
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return c.fault(err)
	}
	return nil
}

// A Job is a process on the agent's host.
type Job struct {
	What string
	c    *Client
	id   int
	done chan struct{}
	end  End
	err  error
}

// Start starts a job. The job ends with the session at the latest.
func (c *Client) Start(ctx context.Context, r Request) (*Job, error) {
	var s Started
	if err := c.do(ctx, http.MethodPost, "/jobs", r, &s); err != nil {
		return nil, err
	}
	j := &Job{What: r.What, c: c, id: s.ID, done: make(chan struct{})}
	go func() {
		defer close(j.done)
		j.err = c.do(c.ctx, http.MethodGet, j.path(), nil, &j.end)
	}()
	return j, nil
}

func (j *Job) path() string { return fmt.Sprintf("/jobs/%d", j.id) }

// Done returns a channel that is closed when the job has ended or the session is lost.
func (j *Job) Done() <-chan struct{} { return j.done }

// End returns how the job ended. Call it only after Done is closed.
func (j *Job) End() (End, error) { return j.end, j.err }

// Stop asks the job to end, kills it if needed, and waits until it has ended.
func (j *Job) Stop(ctx context.Context) error {
	select {
	case <-j.done:
		return nil
	default:
	}
	err := j.c.do(ctx, http.MethodPost, j.path()+"/stop", nil, nil)
	var refused *RefusedError
	if errors.As(err, &refused) {
		select {
		case <-j.done: // the job ended meanwhile
			return nil
		default:
		}
		return err
	}
	if err != nil {
		return err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		return j.c.fault(fmt.Errorf("%s: %w", j.What, context.Cause(ctx)))
	}
	return nil
}

// Log copies the job's output to out until the job ends.
func (j *Job) Log(ctx context.Context, out io.Writer) error {
	a, err := j.c.request(ctx, http.MethodGet, j.path()+"/log", nil)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if _, err := io.Copy(out, a.Body); err != nil {
		return j.c.fault(j.c.explain(ctx, err))
	}
	return nil
}

// Put writes a file below the session's directory. Only jobs can read a private file.
func (c *Client) Put(ctx context.Context, name string, text []byte, private bool) error {
	if err := checkName(name); err != nil {
		return c.fault(err)
	}
	if len(text) > maxFile {
		return c.fault(fmt.Errorf("file %s: %d bytes, want at most %d", name, len(text), maxFile))
	}
	query := ""
	if private {
		query = "?private"
	}
	return c.do(ctx, http.MethodPut, "/files/"+name+query, text, nil)
}

// Find looks for a program that the agent may start.
func (c *Client) Find(ctx context.Context, q Search) (p Program, err error) {
	err = c.do(ctx, http.MethodPost, "/find", q, &p)
	return p, err
}

// Ask makes the agent send one question to a server.
func (c *Client) Ask(ctx context.Context, q Asking) error {
	return c.do(ctx, http.MethodPost, "/ask", q, nil)
}

// Apply undoes the session's earlier lanes and applies new ones. The new lanes are undone unless
// Confirm follows within l.ConfirmWithin.
func (c *Client) Apply(ctx context.Context, l Lanes) (a Applied, err error) {
	err = c.do(ctx, http.MethodPost, "/lanes", l, &a)
	return a, err
}

// Confirm keeps the lanes until the session's end.
func (c *Client) Confirm(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/lanes/confirm", nil, nil)
}

// Rollback undoes the lanes, if any.
func (c *Client) Rollback(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/lanes", nil, nil)
}

// Count reads the host's counters. The function that it returns reads them again and returns
// the difference.
func (c *Client) Count(ctx context.Context, device string, cards []string, jobs map[string]*Job) (
	func(context.Context) (machine.Diff, error), error) {
	q := Counting{Device: device, Cards: cards, Jobs: map[string]int{}}
	for name, j := range jobs {
		q.Jobs[name] = j.id
	}
	return begun[machine.Diff](ctx, c, "/countings", q)
}

// begun starts an activity on the agent's host. The function that it returns ends it.
func begun[A any](ctx context.Context, c *Client, path string, q any) (func(context.Context) (A, error), error) {
	var s Started
	if err := c.do(ctx, http.MethodPost, path, q, &s); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (a A, err error) {
		err = c.do(ctx, http.MethodPost, fmt.Sprintf("%s/%d", path, s.ID), nil, &a)
		return a, err
	}, nil
}

// Meter starts to read a power source of the agent's host. The function that it returns stops
// reading and returns the measurement, with times of the host's own clock.
func (c *Client) Meter(ctx context.Context, config power.Config) (func(context.Context) (power.Result, error), error) {
	return begun[power.Result](ctx, c, "/meters", config)
}
