import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java clients behind a line protocol: one JSON command a line in, one JSON answer a
 * line out. The tests decide what is written; this class only carries it to the broker.
 */
public final class KafkaDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private KafkaDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(clientConfig());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        KafkaDriver driver = new KafkaDriver(arguments[0]);
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            answers.flush();
        }
        driver.close();
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            switch (command.get("op").asText()) {
                case "create_topic" -> createTopic(command, answer);
                case "begin" -> producer(command).beginTransaction();
                case "commit" -> producer(command).commitTransaction();
                case "abort" -> producer(command).abortTransaction();
                case "send" -> send(command, answer);
                case "consume" -> consume(command, answer);
                default -> answer.put("error", "unknown command " + command.get("op"));
            }
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        return answer;
    }

    private void createTopic(JsonNode command, ObjectNode answer) throws Exception {
        Map<String, String> config = new HashMap<>();
        command.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        NewTopic topic = new NewTopic(topicOf(command), command.get("partitions").asInt(), (short) 1);
        // Asking for the id later would race with the broker's own news of the topic.
        CreateTopicsResult created = admin.createTopics(List.of(topic.configs(config)));
        answer.put("topic_id", created.topicId(topicOf(command)).get().toString());
    }

    private void send(JsonNode command, ObjectNode answer) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(command);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            JsonNode time = record.get("timestamp_ms");
            sent.add(producer.send(new ProducerRecord<>(
                topicOf(command), command.get("partition").asInt(),
                time.isNull() ? null : time.asLong(),
                bytes(record.get("key")), bytes(record.get("value")), headers)));
        }
        producer.flush();
        ArrayNode written = answer.putArray("written");
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get();
            written.addArray().add(metadata.offset()).add(metadata.timestamp());
        }
    }

    private void consume(JsonNode command, ObjectNode answer) {
        Properties config = clientConfig();
        config.put("isolation.level", command.get("isolation").asText());
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "10");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        TopicPartition source = new TopicPartition(topicOf(command), command.get("partition").asInt());
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(List.of(source));
            consumer.seekToBeginning(List.of(source));
            long end = consumer.endOffsets(List.of(source)).get(source);
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (consumer.position(source) < end) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(
                        "consumer stands at " + consumer.position(source) + ", the end is " + end);
                }
                consumer.poll(Duration.ofMillis(200)).forEach(record -> describe(record, records.addObject()));
            }
            answer.put("end_offset", end);
        }
    }

    private static void describe(ConsumerRecord<byte[], byte[]> record, ObjectNode node) {
        node.put("offset", record.offset()).put("timestamp_ms", record.timestamp());
        node.put("key", record.key()).put("value", record.value());
        node.put("leader_epoch", record.leaderEpoch().orElse(-1));
        ArrayNode headers = node.putArray("headers");
        record.headers().forEach(h -> headers.addArray().add(h.key()).add(h.value()));
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode command) {
        return producers.computeIfAbsent(command.get("producer").toString(), key -> {
            Properties config = clientConfig();
            command.get("producer").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
            config.put("key.serializer", ByteArraySerializer.class.getName());
            config.put("value.serializer", ByteArraySerializer.class.getName());
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
            if (config.containsKey("transactional.id")) {
                producer.initTransactions();
            }
            return producer;
        });
    }

    /** Producers are left with no time to finish: an open transaction stays open in the log. */
    private void close() {
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
        admin.close(Duration.ZERO);
    }

    private Properties clientConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    private static String topicOf(JsonNode command) {
        return command.get("topic").asText();
    }

    private static byte[] bytes(JsonNode node) throws java.io.IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}
