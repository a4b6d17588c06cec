import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client against a broker: one line "ok step" for each step of the plan that held, or an
 * exception. Compiles against every client from 3.9 on.
 */
public final class ClientSmoke {
    private static final int PER_CODEC = 30;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final Duration READ_TIMEOUT = Duration.ofSeconds(60);
    private static final String RETENTION_MS = "86400000";

    private final JsonNode plan;
    private final String orders;
    private final String payments;
    private final String group;
    private final Admin admin;

    private ClientSmoke(JsonNode plan) {
        this.plan = plan;
        String prefix = plan.get("prefix").asText();
        this.orders = prefix + "-orders";
        this.payments = prefix + "-payments";
        this.group = prefix + "-group";
        this.admin = Admin.create(config());
    }

    public static void main(String[] arguments) throws Exception {
        ClientSmoke smoke = new ClientSmoke(new ObjectMapper().readTree(arguments[0]));
        for (JsonNode step : smoke.plan.get("steps")) {
            smoke.run(step.asText());
            System.out.println("ok " + step.asText());
        }
        smoke.admin.close();
    }

    private void run(String step) throws Exception {
        switch (step) {
            case "topics" -> createTopics();
            case "produce" -> produce();
            case "group" -> readInGroup();
            case "resume" -> resume();
            case "transactions" -> transactions();
            case "admin" -> describeAndDelete();
            case "compacted" -> readCompacted();
            default -> throw new IllegalArgumentException(step);
        }
    }

    private Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", plan.get("bootstrap").asText());
        return config;
    }

    private void createTopics() throws Exception {
        short replication = (short) plan.get("replication").asInt();
        Map<String, String> settings = Map.of("retention.ms", RETENTION_MS);
        admin.createTopics(List.of(
            new NewTopic(orders, 3, replication).configs(settings),
            new NewTopic(payments, 1, replication).configs(settings))).all().get();
        TopicDescription described =
            admin.describeTopics(List.of(orders)).allTopicNames().get().get(orders);
        check(described.partitions().size() == 3, described);
        check(described.partitions().get(0).replicas().size() == replication, described);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, orders);
        Config read = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check(read.get("retention.ms").value().equals(RETENTION_MS), read);
    }

    private KafkaProducer<String, String> producer(String name, String value) {
        Properties config = config();
        config.put(name, value);
        config.put("linger.ms", "20");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static void send(
        KafkaProducer<String, String> producer, String topic, String word, int count)
        throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            ProducerRecord<String, String> record =
                new ProducerRecord<>(topic, "key-" + number, word + "-" + number);
            record.headers().add("codec", word.getBytes(StandardCharsets.UTF_8));
            sent.add(producer.send(record));
        }
        for (Future<RecordMetadata> metadata : sent) {
            metadata.get();
        }
    }

    private void produce() throws Exception {
        for (String codec : CODECS) {
            try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
                send(producer, orders, codec, PER_CODEC);
            }
        }
    }

    private List<ConsumerRecord<String, String>> read(
        String topic, String groupId, Predicate<List<ConsumerRecord<String, String>>> isEnd) {
        Properties config = config();
        config.put("group.id", groupId);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("isolation.level", "read_committed");
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + READ_TIMEOUT.toNanos();
        try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!isEnd.test(records)) {
                check(System.nanoTime() < deadline, "only " + records.size() + " of " + topic);
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
            }
            consumer.commitSync();
        }
        return records;
    }

    private void readInGroup() {
        List<ConsumerRecord<String, String>> records =
            read(orders, group, r -> r.size() >= CODECS.size() * PER_CODEC);
        checkSame(values(records), named(PER_CODEC, CODECS));
        for (ConsumerRecord<String, String> record : records) {
            String[] parts = record.value().split("-");
            String codec =
                new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
            check(record.key().equals("key-" + parts[1]) && codec.equals(parts[0]), record);
        }
    }

    private void resume() throws Exception {
        try (KafkaProducer<String, String> producer = producer("acks", "all")) {
            send(producer, orders, "later", PER_CODEC);
        }
        checkSame(
            values(read(orders, group, r -> r.size() >= PER_CODEC)),
            named(PER_CODEC, List.of("later")));
    }

    private void transactions() throws Exception {
        String groupId = group + "-sent";
        OffsetAndMetadata offset = new OffsetAndMetadata(5);
        TopicPartition tp = new TopicPartition(orders, 0);
        try (KafkaProducer<String, String> producer = producer("transactional.id", payments)) {
            producer.initTransactions();
            for (String word : List.of("first", "dropped", "second")) {
                producer.beginTransaction();
                send(producer, payments, word, 10);
                if (word.equals("dropped")) {
                    producer.abortTransaction();
                } else {
                    producer.sendOffsetsToTransaction(Map.of(tp, offset), outsideOf(groupId));
                    producer.commitTransaction();
                }
            }
        }
        checkSame(
            values(read(payments, group + "-payments", r -> r.size() >= 20)),
            named(10, List.of("first", "second")));
        check(committed(groupId).get(tp).offset() == 5, committed(groupId));
    }

    /** The metadata of a consumer that has not joined. */
    private ConsumerGroupMetadata outsideOf(String groupId) {
        Properties config = config();
        config.put("group.id", groupId);
        try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            return consumer.groupMetadata();
        }
    }

    private Map<TopicPartition, OffsetAndMetadata> committed(String groupId) throws Exception {
        return admin.listConsumerGroupOffsets(groupId).partitionsToOffsetAndMetadata().get();
    }

    private long endOffset(TopicPartition tp) throws Exception {
        return admin.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get().offset();
    }

    private void describeAndDelete() throws Exception {
        var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        check(described.members().isEmpty(), described);
        for (int partition = 0; partition < 3; partition++) {
            TopicPartition tp = new TopicPartition(orders, partition);
            check(committed(group).get(tp).offset() == endOffset(tp), committed(group));
        }
        admin.deleteTopics(List.of(payments)).all().get();
        check(!admin.listTopics().names().get().contains(payments), payments);
    }

    private void readCompacted() throws Exception {
        JsonNode table = plan.get("compacted");
        String topic = table.get("topic").asText();
        long last = endOffset(new TopicPartition(topic, 0)) - 1;
        List<ConsumerRecord<String, String>> records = read(
            topic, group + "-table", r -> !r.isEmpty() && r.get(r.size() - 1).offset() == last);
        check(records.size() < table.get("written").asInt(), "nothing was cleaned");
        Map<String, String> latest = new HashMap<>();
        records.forEach(record -> latest.put(record.key(), record.value()));
        Map<String, String> wanted = new HashMap<>();
        for (int number = 0; number < table.get("keys").asInt(); number++) {
            String value = "round-" + table.get("last_round").asInt() + " of " + number;
            wanted.put("key-" + number, value);
        }
        check(latest.equals(wanted), latest);
    }

    private static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return new ArrayList<>(records.stream().map(ConsumerRecord::value).toList());
    }

    private static List<String> named(int count, List<String> words) {
        List<String> names = new ArrayList<>();
        for (String word : words) {
            for (int number = 0; number < count; number++) {
                names.add(word + "-" + number);
            }
        }
        return names;
    }

    private static void checkSame(List<String> read, List<String> wanted) {
        Collections.sort(read);
        Collections.sort(wanted);
        check(read.equals(wanted), "read " + read + ", wanted " + wanted);
    }

    private static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
