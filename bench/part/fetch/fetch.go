// SPDX-License-Identifier: Apache-2.0

// Package fetch fills a cache: it requests all objects, so that the measured requests are hits, or
// intended misses. It measures nothing.
package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Config is the configuration of Run.
type Config struct {
	// Address of the cache, HOST:PORT. Host is the Host header.
	Address string `json:"address"`
	Host    string `json:"host,omitempty"`
	// Objects are the objects to request. "$n" in a path is the number of the copy, from 1.
	Objects []Object `json:"objects"`
	// With TLS, the server's certificate is verified with the certificates in CAFile; "": it is
	// not verified.
	TLS    bool   `json:"tls,omitempty"`
	CAFile string `json:"caFile,omitempty"`
	// Connections is the number of connections at the same time, by default Connections.
	Connections int `json:"connections,omitempty"`
	// Passes is the number of passes over all objects, default 1. Use 2 for a cache that keeps
	// in memory only what it has read, not what it has written.
	Passes int `json:"passes,omitempty"`
}

// Connections is the default number of connections.
const Connections = 4

// An Object is an HTTP object and its number of copies.
type Object struct {
	Path   string `json:"path"`
	Copies int    `json:"copies"`
	Bytes  int64  `json:"bytes"`
}

// Result is what was fetched.
type Result struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Run fetches all objects. It ends with an error at the first wrong answer.
func Run(ctx context.Context, c Config) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client, err := c.client()
	if err != nil {
		return Result{}, err
	}
	defer client.CloseIdleConnections()
	paths := make(chan Object)
	go func() {
		defer close(paths)
		for _, o := range slices.Repeat(c.Objects, max(1, c.Passes)) {
			for i := range max(1, o.Copies) {
				select {
				case paths <- Object{Path: strings.ReplaceAll(o.Path, "$n", strconv.Itoa(i+1)), Bytes: o.Bytes}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	var objects, bytes atomic.Int64
	var all sync.WaitGroup
	for range max(1, c.connections()) {
		all.Go(func() {
			for o := range paths {
				if err := c.get(ctx, client, o); err != nil {
					cancel(fmt.Errorf("%s: %w", o.Path, err))
					return
				}
				objects.Add(1)
				bytes.Add(o.Bytes)
			}
		})
	}
	all.Wait()
	return Result{objects.Load(), bytes.Load()}, context.Cause(ctx)
}

func (c Config) connections() int {
	if c.Connections > 0 {
		return c.Connections
	}
	return Connections
}

func (c Config) client() (*http.Client, error) {
	t := &http.Transport{
		MaxIdleConnsPerHost: c.connections(), DisableCompression: true, Proxy: nil,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.Address)
		},
	}
	if c.TLS {
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: c.CAFile == "", NextProtos: []string{"http/1.1"}}
		if c.CAFile != "" {
			pem, err := os.ReadFile(c.CAFile)
			if err != nil {
				return nil, err
			}
			t.TLSClientConfig.RootCAs = x509.NewCertPool()
			if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s: no certificate in PEM form", c.CAFile)
			}
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}, nil
}

func (c Config) get(ctx context.Context, client *http.Client, o Object) error {
	scheme := "http://"
	if c.TLS {
		scheme = "https://"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+c.Address+o.Path, nil)
	if err != nil {
		return err
	}
	if c.Host != "" {
		r.Host = c.Host
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || n != o.Bytes {
		return fmt.Errorf("status %d and %d bytes, want 200 and %d", answer.StatusCode, n, o.Bytes)
	}
	return nil
}
