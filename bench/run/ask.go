// SPDX-License-Identifier: Apache-2.0

package run

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

// A dialer opens a connection from a host.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// A question is how a server is asked whether it is ready.
type question struct {
	protocol string // of experiment.Ready
	host     string // Host header
	path     string
}

// answering asks until the server answers as its protocol demands, patience
// has passed, or down says that it is no longer there.
func answering(ctx context.Context, dial dialer, address string, q question, patience time.Duration, down func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask(ctx, dial, address, q)
		if err == nil {
			return nil
		}
		if gone := down(); gone != nil {
			return gone
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s at %s does not answer within %v: %w", q.protocol, address, patience, err)
		}
	}
}

// askTimeout bounds one attempt.
const askTimeout = 2 * time.Second

func ask(ctx context.Context, dial dialer, address string, q question) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
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
	switch q.protocol {
	case experiment.ProtocolMemcached:
		return exchange(conn, "version\r\n", "VERSION ")
	case experiment.ProtocolRESP:
		return exchange(conn, "*1\r\n$4\r\nPING\r\n", "+PONG")
	case experiment.ProtocolHTTPS:
		// Whether it is the right certificate the generator says.
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		return get(conn, q)
	case experiment.ProtocolHTTP:
		return get(conn, q)
	}
	return nil // tcp: the connection is the answer
}

// exchange sends a request and wants an answer that begins with want.
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

func get(conn net.Conn, q question) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", q.path, q.host); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %q to GET %s, want 200", response.Status, q.path)
	}
	return nil
}
