// sarama against a broker.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"penstock/outside/smoke"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() {
	smoke.Run(map[string]func(context.Context, smoke.Plan){
		"topics": createTopics, "produce": produce, "group": readInGroup, "resume": resume,
		"transactions": transactions, "admin": describeAndDelete, "compacted": readCompacted,
	})
}

func newConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	return config
}

func openAdmin(plan smoke.Plan) sarama.ClusterAdmin {
	return smoke.Get(sarama.NewClusterAdmin(plan.Brokers(), newConfig()))
}

func createTopics(_ context.Context, plan smoke.Plan) {
	admin := openAdmin(plan)
	defer admin.Close()
	retention := "86400000"
	for name, partitions := range map[string]int32{plan.Orders(): 3, plan.Payments(): 1} {
		smoke.Must(admin.CreateTopic(name, &sarama.TopicDetail{
			NumPartitions: partitions, ReplicationFactor: int16(plan.Replication),
			ConfigEntries: map[string]*string{"retention.ms": &retention},
		}, false))
	}
	topics := smoke.Get(admin.DescribeTopics([]string{plan.Orders()}))
	smoke.Check(len(topics[0].Partitions) == 3, "%v", topics[0])
	smoke.Check(len(topics[0].Partitions[0].Replicas) == plan.Replication, "%v", topics[0])
	entries := smoke.Get(admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: plan.Orders(), ConfigNames: []string{"retention.ms"},
	}))
	smoke.Check(entries[0].Value == retention, "%v", entries[0])
}

func messagesOf(topic, word string, count int) []*sarama.ProducerMessage {
	var messages []*sarama.ProducerMessage
	for number := range count {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprintf("key-%d", number)),
			Value:   sarama.StringEncoder(fmt.Sprintf("%s-%d", word, number)),
			Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(word)}},
		})
	}
	return messages
}

func write(plan smoke.Plan, word string, compression sarama.CompressionCodec) {
	config := newConfig()
	config.Producer.Compression = compression
	producer := smoke.Get(sarama.NewSyncProducer(plan.Brokers(), config))
	smoke.Must(producer.SendMessages(messagesOf(plan.Orders(), word, smoke.PerCodec)))
	smoke.Must(producer.Close())
}

func produce(_ context.Context, plan smoke.Plan) {
	for codec, compression := range codecs {
		write(plan, codec, compression)
	}
}

// collector is the handler of one session: it keeps what comes until the end, then commits.
type collector struct {
	lock     sync.Mutex
	messages []smoke.Message
	isEnd    func([]smoke.Message) bool
	stop     context.CancelFunc
}

func (c *collector) Setup(sarama.ConsumerGroupSession) error { return nil }

func (c *collector) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (c *collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			c.keep(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *collector) keep(message *sarama.ConsumerMessage) {
	c.lock.Lock()
	defer c.lock.Unlock()
	read := smoke.Message{
		Partition: int(message.Partition), Offset: message.Offset,
		Key: string(message.Key), Value: string(message.Value),
	}
	for _, header := range message.Headers {
		read.Codec = string(header.Value)
	}
	c.messages = append(c.messages, read)
	if c.isEnd(c.messages) {
		c.stop()
	}
}

func read(ctx context.Context, plan smoke.Plan, topic, group string, isEnd func([]smoke.Message) bool) []smoke.Message {
	consumer := smoke.Get(sarama.NewConsumerGroup(plan.Brokers(), group, newConfig()))
	session, stop := context.WithCancel(ctx)
	handler := &collector{isEnd: isEnd, stop: stop}
	for session.Err() == nil {
		smoke.Must(consumer.Consume(session, []string{topic}, handler))
	}
	smoke.Check(ctx.Err() == nil, "only %d messages of %s in time", len(handler.messages), topic)
	smoke.Must(consumer.Close())
	return handler.messages
}

func atLeast(count int) func([]smoke.Message) bool {
	return func(messages []smoke.Message) bool { return len(messages) >= count }
}

func readInGroup(ctx context.Context, plan smoke.Plan) {
	var names []string
	for codec := range codecs {
		names = append(names, codec)
	}
	messages := read(ctx, plan, plan.Orders(), plan.Group(), atLeast(len(names)*smoke.PerCodec))
	smoke.CheckOrders(messages, names)
}

func resume(ctx context.Context, plan smoke.Plan) {
	write(plan, "later", sarama.CompressionNone)
	later := read(ctx, plan, plan.Orders(), plan.Group(), atLeast(smoke.PerCodec))
	smoke.CheckSame("resumed", smoke.Values(later), smoke.Named(smoke.PerCodec, "later"))
}

func transactions(ctx context.Context, plan smoke.Plan) {
	config := newConfig()
	config.Producer.Transaction.ID = plan.Payments()
	producer := smoke.Get(sarama.NewSyncProducer(plan.Brokers(), config))
	for _, word := range []string{"first", "dropped", "second"} {
		smoke.Must(producer.BeginTxn())
		smoke.Must(producer.SendMessages(messagesOf(plan.Payments(), word, 10)))
		if word == "dropped" {
			smoke.Must(producer.AbortTxn())
		} else {
			offsets := map[string][]*sarama.PartitionOffsetMetadata{plan.Orders(): {{Partition: 0, Offset: 5, LeaderEpoch: -1}}}
			smoke.Must(producer.AddOffsetsToTxn(offsets, plan.Prefix+"-sent"))
			smoke.Must(producer.CommitTxn())
		}
	}
	smoke.Must(producer.Close())
	seen := read(ctx, plan, plan.Payments(), plan.Prefix+"-committed", atLeast(20))
	smoke.CheckSame("committed", smoke.Values(seen), smoke.Named(10, "first", "second"))
	admin := openAdmin(plan)
	defer admin.Close()
	sent := smoke.Get(admin.ListConsumerGroupOffsets(plan.Prefix+"-sent", map[string][]int32{plan.Orders(): {0}}))
	smoke.Check(sent.GetBlock(plan.Orders(), 0).Offset == 5, "%v", sent.GetBlock(plan.Orders(), 0))
}

func describeAndDelete(_ context.Context, plan smoke.Plan) {
	admin := openAdmin(plan)
	defer admin.Close()
	groups := smoke.Get(admin.DescribeConsumerGroups([]string{plan.Group()}))
	smoke.Check(groups[0].State == "Empty", "%v", groups[0])
	committed := smoke.Get(admin.ListConsumerGroupOffsets(plan.Group(), map[string][]int32{plan.Orders(): {0, 1, 2}}))
	for partition := range int32(3) {
		offset, end := committed.GetBlock(plan.Orders(), partition).Offset, endOffset(plan, plan.Orders(), partition)
		smoke.Check(offset == end, "committed %d of partition %d, the end is %d", offset, partition, end)
	}
	smoke.Must(admin.DeleteTopic(plan.Payments()))
	_, isThere := smoke.Get(admin.ListTopics())[plan.Payments()]
	smoke.Check(!isThere, "%s is still there", plan.Payments())
}

func endOffset(plan smoke.Plan, topic string, partition int32) int64 {
	client := smoke.Get(sarama.NewClient(plan.Brokers(), newConfig()))
	defer client.Close()
	return smoke.Get(client.GetOffset(topic, partition, sarama.OffsetNewest))
}

func readCompacted(ctx context.Context, plan smoke.Plan) {
	end := endOffset(plan, plan.Compacted.Topic, 0)
	isEnd := func(messages []smoke.Message) bool { return messages[len(messages)-1].Offset == end-1 }
	smoke.CheckCompacted(read(ctx, plan, plan.Compacted.Topic, plan.Prefix+"-table", isEnd), plan)
}
