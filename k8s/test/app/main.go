// SPDX-License-Identifier: Apache-2.0

// App is the program that runs in the tests' pods. Without arguments, it waits for a signal, as a
// pod's sandbox does. With "end", as in an init container, it ends. With "serve ADDRESS", it sends
// back the data that it receives by TCP and UDP.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "end" {
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		if err := serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "app:", err)
			os.Exit(1)
		}
	}
	<-end
}

func serve(address string) error {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := tcp.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() {
					defer conn.Close()
					io.Copy(conn, conn)
				}()
			}
		}
	}()
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := udp.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				udp.WriteTo(buf[:n], from)
			}
		}
	}()
	fmt.Println("serving", address)
	return nil
}
