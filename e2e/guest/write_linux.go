package main

import (
	"net/url"
	"strconv"
	"time"
)

// write is the command under the lock. It sends a numbered write to the test once a
// second, by the guest's clock, until the answer is "enough".
func write() error {
	o, err := readOrders()
	if err != nil {
		return err
	}
	beat := time.NewTicker(time.Second)
	for n := 1; ; n++ {
		answer, err := o.report("write", url.Values{"beat": {strconv.Itoa(n)}})
		if err != nil {
			return err
		}
		if answer == "enough" {
			return nil
		}
		<-beat.C
	}
}
