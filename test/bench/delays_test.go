// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/delayserver"
)

// delayServerEnv is the environment variable with the configuration of a delay server. If it is
// set, this program runs only the server. In a process with other work, the garbage collector or a
// lock of another goroutine would delay the answers.
const delayServerEnv = "NICLANE_DELAY_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(delayServerEnv); text != "" {
		if err := serveDelays(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serveDelays(text string) error {
	var c delayserver.Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	c.Alone = true
	s, err := delayserver.Start(c)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // wait until standard input is closed
	r, err := s.Stop()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// startDelays starts a delay server in its own process. It returns the server's address and a
// function that ends it.
func startDelays(b *testing.B, c delayserver.Config) (address string, stop func() delayserver.Result) {
	b.Helper()
	text, err := json.Marshal(c)
	must.Do(b, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), delayServerEnv+"="+string(text)), os.Stderr
	in, err := cmd.StdinPipe()
	must.Do(b, err)
	out, err := cmd.StdoutPipe()
	must.Do(b, err)
	must.Do(b, cmd.Start())
	if _, err := fmt.Fscanln(out, &address); err != nil {
		_ = cmd.Wait()
		b.Fatalf("the delay server: %v", err)
	}
	return address, func() (r delayserver.Result) {
		in.Close()
		err := json.NewDecoder(out).Decode(&r)
		if werr := cmd.Wait(); err == nil {
			err = werr
		}
		if err != nil {
			b.Fatalf("the delay server: %v", err)
		}
		return r
	}
}
