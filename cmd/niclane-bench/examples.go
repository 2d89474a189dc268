// SPDX-License-Identifier: Apache-2.0

package main

//go:generate go test . -run Manual|Current -update

// examples are the examples in the help of each command.
var examples = map[string]string{
	"first-lane": `
niclane bench first-lane --out demo
niclane bench first-lane --pairs 4 --card none
niclane bench first-lane --rate 20000 --print-file > my.yaml`,
	"run": `
niclane bench run --dry-run my.yaml
niclane bench run --out result my.yaml
niclane bench run --hosts hosts.yaml --out result my.yaml`,
	"papers": `
niclane bench papers experiments --out papers --quick
niclane bench papers experiments --out papers --page-only`,
	"serve": `
niclane bench serve --listen 192.0.2.7:7411 --cert sut.pem --key sut.key --ca ca.pem
niclane bench serve --listen 192.0.2.7:7411 --cert sut.pem --key sut.key --ca ca.pem --lanes eth0`,
	"certs": `
niclane bench certs pki --hosts sut.example,client.example
niclane bench certs pki --hosts 192.0.2.7,192.0.2.8 --valid 24h`,
	"simulate": `
niclane simulate lanes.yaml
niclane simulate lanes.yaml --host probe.json --noise 90%
niclane simulate lanes.yaml --link 25gbit --queues 16 --bulk 10%`,
	"trial": `
niclane trial lanes.yaml
niclane trial lanes.yaml --for 30m --port 9100 --out trial.json
niclane trial queues.yaml queues-and-poller.yaml --window 10s
niclane trial --prepare lanes.yaml`,
	"report": `
niclane report result
niclane report result --format html --out report.html
niclane report before after
niclane report --servers old=result-1 new=result-2 --out servers.html`,
	"refresh": `
niclane refresh --list
niclane refresh --rack-power 8 paper:2x6252N/live/48 paper:2x6710E/live/48
niclane refresh old#lane new#lane
niclane refresh --requests 1000000 result#off result#lane`,
	"selftest": `
niclane selftest eth0 --peer 192.0.2.8 --cert sut.pem --key sut.key --ca ca.pem --dry-run
niclane selftest eth0 --peer 192.0.2.8 --cert sut.pem --key sut.key --ca ca.pem`,
	"selftest show": `
niclane selftest show selftest/selftest.json
niclane selftest show --format row selftest/selftest.json`,
	"version": `
niclane-bench version
niclane-bench version --json`,
}
