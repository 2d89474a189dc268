// SPDX-License-Identifier: Apache-2.0

// Package ready checks whether a server answers, in its own protocol.
package ready

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
)

// A Dialer opens a connection.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// A Question is a request that shows that a server is ready.
type Question struct {
	Protocol string `json:"protocol"`       // as in experiment.Ready
	Host     string `json:"host,omitempty"` // Host header
	Path     string `json:"path,omitempty"`
}

// timeout limits one attempt.
const timeout = 2 * time.Second

// Ask connects to address, asks q once, and returns an error unless the server gives the expected
// answer.
func Ask(ctx context.Context, dial Dialer, address string, q Question) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	switch q.Protocol {
	case experiment.ProtocolMemcached:
		return exchange(conn, "version\r\n", "VERSION ")
	case experiment.ProtocolRESP:
		return exchange(conn, "*1\r\n$4\r\nPING\r\n", "+PONG")
	case experiment.ProtocolHTTPS:
		// The certificate is not verified here: the generator does that.
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		return get(conn, q)
	case experiment.ProtocolHTTP:
		return get(conn, q)
	}
	return nil // tcp: an accepted connection is enough
}

// exchange sends a request and requires an answer that begins with want.
func exchange(conn net.Conn, send, want string) error {
	if _, err := conn.Write([]byte(send)); err != nil {
		return err
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(got, want) {
		return fmt.Errorf("answered %.100q, want %q", strings.TrimSpace(got), want)
	}
	return nil
}

func get(conn net.Conn, q Question) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", q.Path,
		q.Host); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %q to GET %s, want 200", response.Status, q.Path)
	}
	return nil
}
